package pubsub

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// client is a session without I/O in front of the servers a and b, which the test plays.
type client struct {
	t             testing.TB
	subscriptions Subscriptions
	view          *topology.View
	watch         func()
	conns         map[topology.Node]*conn
	later         []func() // called after a refresh
	got           strings.Builder
	over          bool
	flush         chan bool // nil: nothing waits for it
	flushes       atomic.Int32
	mu            sync.Mutex
}

type conn struct {
	observer stream.Observer
	sent     []string // commands, as words
	refusal  []byte   // the server has refused the connection
	released bool
	closed   bool
}

func newClient(t testing.TB) *client {
	c := &client{t: t, view: clustertest.Split(t, hashslot.Count/2), conns: map[topology.Node]*conn{}}
	c.subscriptions.Open(c, c)
	t.Cleanup(c.subscriptions.Close) // stops the timers
	return c
}

func (c *client) Open(at topology.Node, _ func(Conn, []byte)) (Conn, func() bool) {
	c.conns[at] = &conn{}
	return c.conns[at], nil
}

func (c *client) View() *topology.View                             { return c.view }
func (c *client) Refused(topology.RefusalReason)                   {}
func (c *client) FailoverWait() time.Duration                      { return time.Hour }
func (c *client) Later(_ topology.Node, _ time.Duration, f func()) { c.later = append(c.later, f) }
func (c *client) CutOff()                                          { c.over = true }
func (c *client) Message(b []byte)                                 { c.got.Write(b) }
func (c *client) Put(_ reply.ID, b []byte, _ bool)                 { c.got.Write(b) }
func (c *client) Answered(reply.ID, int)                           {}
func (c *client) Resume()                                          {}

func (c *client) Enter(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	return true
}

func (c *client) Do(f func()) bool {
	defer c.Flush()
	return c.Enter(f)
}

func (c *client) Flush() {
	c.flushes.Add(1)
	if c.flush != nil {
		c.flush <- true
	}
}

func (c *client) Watch(f func()) func() {
	c.watch = f
	return func() { c.watch = nil }
}

func (n *conn) Observe(o stream.Observer) { n.observer = o }
func (n *conn) ReadFrames()               {}
func (n *conn) ReadReplies()              {}
func (n *conn) Send()                     {}
func (n *conn) Release()                  { n.released = true }
func (n *conn) Discard()                  { n.closed = true }
func (n *conn) Connected() bool           { return n.refusal == nil }
func (n *conn) Rejected() bool            { return false }
func (n *conn) Refusal() []byte           { return n.refusal }

func (n *conn) Append(b []byte, _ stream.Receiver, _ uint64, _ int) error {
	for len(b) > 0 {
		v, size, err := resp.Decode(b)
		if err != nil {
			return err
		}
		var words []string
		for _, e := range v.Elems {
			words = append(words, string(e.Str))
		}
		n.sent, b = append(n.sent, strings.Join(words, " ")), b[size:]
	}
	return nil
}

func frame(words ...string) []byte { return resp.AppendCommand(nil, words...) }

// confirm confirms what has been sent to a server.
func (c *client) confirm(at topology.Node) { c.Enter(func() { c.confirmLocked(at) }) }

func (c *client) confirmLocked(at topology.Node) {
	n := c.conns[at]
	sent := n.sent
	n.sent = nil
	for _, line := range sent {
		words := strings.Fields(line)
		for _, name := range words[1:] {
			n.observer.(*subscriber).frame(appendConfirmation(nil, 2, words[0], []byte(name), 1), resp.Push)
		}
	}
}

// refreshed gives the client another view.
func (c *client) refreshed(v *topology.View) {
	c.view = v
	for len(c.later) > 0 {
		f := c.later[0]
		c.later = c.later[1:]
		f()
	}
}

// sent fails unless a server has got just these commands.
func (c *client) sent(at topology.Node, want ...string) {
	c.t.Helper()
	var got []string
	if n := c.conns[at]; n != nil {
		got = n.sent
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		c.t.Errorf("%s has got %q, want %q", at, got, want)
	}
}

// took fails unless the client has got these bytes since the last call.
func (c *client) took(want ...[]byte) {
	c.t.Helper()
	var all []byte
	for _, b := range want {
		all = append(all, b...)
	}
	if got := c.got.String(); got != string(all) {
		c.t.Errorf("the client has got %q, want %q", got, all)
	}
	c.got.Reset()
}

func (c *client) ask(line string) {
	words := resp.Split(frame(strings.Fields(line)...), nil)
	c.Enter(func() { c.subscriptions.Ask(string(words[0]), words[1:], 2, 1, false) })
}

func confirmed(verb, name string, n int) []byte {
	return appendConfirmation(nil, 2, verb, []byte(name), n)
}

func TestSubscriptionsMoveWithTheirServer(t *testing.T) {
	c := newClient(t)
	c.ask("subscribe x y")
	c.sent("a", "subscribe x y")
	c.confirm("a")
	c.took(confirmed("subscribe", "x", 1), confirmed("subscribe", "y", 2))
	old := c.conns["a"]
	old.observer.Closed(nil)
	c.refreshed(clustertest.Split(t, 0))
	if n := c.conns["b"]; n == nil || len(n.sent) == 0 {
		t.Fatal("no other server is asked")
	}
	c.confirm("b")
	c.took()
	c.conns["b"].observer.Push(frame("message", "x", "m"), resp.Array)
	old.observer.Push(frame("message", "x", "late"), resp.Array)
	c.took(frame("message", "x", "m"))
}

func TestANewSubscriptionStandsBeforeTheOldOneEnds(t *testing.T) {
	c := newClient(t)
	c.ask("subscribe x")
	c.confirm("a")
	c.took(confirmed("subscribe", "x", 1))
	c.view = clustertest.Split(t, 0)
	c.watch()
	c.sent("b", "subscribe x")
	message := frame("message", "x", "m")
	c.conns["a"].observer.Push(message, resp.Array)
	c.confirm("b")
	c.conns["a"].observer.Push(message, resp.Array) // both have got it
	c.conns["b"].observer.Push(message, resp.Array)
	c.took(message, message)
	c.sent("a", "unsubscribe x")
	c.confirm("a")
	c.took()
	if !c.conns["a"].released {
		t.Error("the old connection is not given back")
	}
}

func TestASubscriberGivesItsConnectionBack(t *testing.T) {
	for _, test := range []struct {
		name, channels   string
		refused, discard bool
	}{
		{name: "a few channels", channels: "a b c d"},
		{name: "more channels: Redis keeps larger tables", channels: "a b c d e", discard: true},
		{name: "their end is refused", channels: "a", refused: true, discard: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			c.ask("subscribe " + test.channels)
			c.confirm("a")
			c.ask("unsubscribe " + test.channels)
			if test.refused {
				c.conns["a"].observer.Push([]byte("-NOPERM no\r\n"), '-')
			} else {
				c.confirm("a")
			}
			if got := c.conns["a"]; got.released == test.discard || got.closed != test.discard {
				t.Errorf("released %v, closed %v", got.released, got.closed)
			}
		})
	}
}

func TestARefusalUndoesTheWholeCommand(t *testing.T) {
	c := newClient(t)
	c.ask("ssubscribe low{06S} high{3}") // of two slots
	if len(c.conns) == 0 {
		t.Fatal("no server is asked")
	}
	words := []byte("-NOPERM no\r\n")
	for _, n := range c.conns {
		n.observer.Push(words, resp.SimpleError)
		break
	}
	c.took(words)
	for at := range c.conns {
		c.confirm(at)
	}
	c.took()
	if c.subscriptions.Listening() || c.subscriptions.Bytes() != 0 || c.watch != nil {
		t.Error("something of the subscriptions is left")
	}
}

// A client chooses how many channels it names. An event loop has other clients, too.
func TestALongCommandIsCarriedOutInParts(t *testing.T) {
	c := newClient(t)
	c.flush = make(chan bool, 1)
	const n = 2*maxAsked + 1
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("ch", i))
	}
	for _, verb := range []string{"subscribe", "unsubscribe"} {
		c.ask(verb + " " + strings.Join(names, " "))
		for told := 0; told < n; {
			part := min(maxAsked, n-told)
			c.Enter(func() { c.sent("a", verb+" "+strings.Join(names[told:told+part], " ")) })
			c.confirm("a")
			var want [][]byte
			for range part {
				count := told + 1
				if verb == "unsubscribe" {
					count = n - 1 - told
				}
				want = append(want, confirmed(verb, names[told], count))
				told++
			}
			message := frame("message", names[0], "m")
			if c.conns["a"].observer.Push(message, resp.Array); verb == "subscribe" { // the client knows that it listens
				want = append(want, message)
			}
			c.Enter(func() { c.took(want...) })
			if told < n {
				<-c.flush
			}
		}
	}
	if c.subscriptions.Listening() || c.subscriptions.Bytes() != 0 || c.watch != nil {
		t.Error("something of the subscriptions is left")
	}
	c.ask("subscribe " + strings.Join(names, " "))
	for range 2 {
		c.confirm("a")
		<-c.flush
	}
	c.confirm("a")
	c.got.Reset()
	c.ask("unsubscribe")
	for range 2 {
		c.confirm("a")
		<-c.flush
	}
	c.confirm("a")
	if got := strings.Count(c.got.String(), "unsubscribe"); got != n || c.subscriptions.Listening() {
		t.Errorf("%d ends of %d subscriptions are told", got, n)
	}
}

// A connection that replaces a lost one may be refused between two parts of a command.
func TestARefusalBetweenTwoPartsLeavesTheFirst(t *testing.T) {
	c := newClient(t)
	c.flush = make(chan bool, 1)
	c.ask("subscribe" + strings.Repeat(" x", maxAsked) + " y")
	refusal := []byte("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	c.Enter(func() { // the next part waits for the session
		c.confirmLocked("a")
		c.took(bytes.Repeat(confirmed("subscribe", "x", 1), maxAsked))
		c.conns["a"].observer.(*subscriber).gone()
		c.refreshed(clustertest.Split(t, 0))
		c.conns["b"].refusal = refusal
		c.conns["b"].observer.(*subscriber).gone()
		c.took(refusal)
		delete(c.conns, "b")
	})
	<-c.flush
	c.refreshed(c.view)
	c.sent("b", "subscribe x")
	c.confirm("b")
	c.ask("subscribe y")
	c.confirm("b")
	c.took(confirmed("subscribe", "y", 2))
}

// A channel that a later part names is not received before.
func TestTheEndOfASessionEndsALongCommand(t *testing.T) {
	c := newClient(t)
	c.flush = make(chan bool, 1)
	c.ask("subscribe" + strings.Repeat(" x", maxAsked) + " y")
	c.confirm("a")
	c.Enter(c.subscriptions.Close)
	<-c.flush
	if c.subscriptions.Listening() || c.subscriptions.Bytes() != 0 {
		t.Error("the next part has begun")
	}
}

// A client chooses how many channels a server that ends takes with it.
func TestManyChannelsMoveInParts(t *testing.T) {
	c := newClient(t)
	const n = 2*maxAsked + 1
	for i := range n {
		c.ask(fmt.Sprint("subscribe ch", i))
		c.confirm("a")
	}
	c.got.Reset()
	c.flush = make(chan bool)
	finish := func() {
		for range 2 {
			<-c.flush
		}
	}
	old := c.conns["a"].observer.(*subscriber)
	c.Enter(func() {
		old.gone()
		if got := len(c.subscriptions.homeless); got != maxAsked {
			t.Errorf("%d channels have lost their server in one step", got)
		}
	})
	finish()
	c.Enter(func() {
		c.refreshed(clustertest.Split(t, 0))
		if got := len(c.subscriptions.homeless); got != n-maxAsked {
			t.Errorf("%d channels are still homeless after one step", got)
		}
	})
	finish()
	c.confirm("b")
	c.Enter(func() {
		c.subscriptions.Again(3)
		if got := len(c.subscriptions.subscribers["b"].asked); got != maxAsked {
			t.Errorf("%d channels begin anew in one step", got)
		}
	})
	finish()
	c.confirm("b")
	if got := len(c.subscriptions.subscribers["b"].asked); got != n || len(c.subscriptions.homeless) != 0 {
		t.Errorf("%d channels are received, want %d", got, n)
	}
	c.conns["b"].observer.Push(frame("message", "ch0", "m"), resp.Array)
	c.took(frame("message", "ch0", "m"))
}

func TestMessagesFollowTheConfirmation(t *testing.T) {
	c := newClient(t)
	c.ask("psubscribe __key* p*")
	c.confirm("a")
	message := frame("pmessage", "p*", "pp", "m")
	c.conns["a"].observer.Push(message, resp.Array)
	c.took() // b has not confirmed the pattern of events
	c.confirm("b")
	c.took(confirmed("psubscribe", "__key*", 1), confirmed("psubscribe", "p*", 2), message)
	event := frame("pmessage", "__key*", "__keyspace@0__:k", "set")
	c.conns["b"].observer.Push(event, resp.Array)
	c.conns["b"].observer.Push(frame("pmessage", "__key*", "__keys", "by PUBLISH"), resp.Array) // a tells it, too
	c.took(event)
}

// A write for each message would cost far more than the messages.
func TestMessagesThatComeTogetherLeaveTogether(t *testing.T) {
	c := newClient(t)
	c.ask("subscribe x")
	c.confirm("a")
	from := c.conns["a"].observer
	before := c.flushes.Load()
	for range 3 {
		from.Push(frame("message", "x", "m"), resp.Array)
	}
	from.Holding(10)
	if n := c.flushes.Load() - before; n != 0 {
		t.Errorf("%d writes before the end of what has come", n)
	}
	if from.Flush(); c.flushes.Load() == before {
		t.Error("the messages are not written")
	}
}

// A message that was sent before the subscription may reach the other servers behind it.
func TestAMessageIsNotOlderThanItsSubscription(t *testing.T) {
	c := newClient(t)
	c.ask("psubscribe *")
	c.confirm("b")
	old := frame("pmessage", "*", "ch", "old")
	c.conns["b"].observer.Push(old, resp.Array)
	c.confirm("a") // to which all PUBLISH go
	c.took(confirmed("psubscribe", "*", 1))
	c.conns["b"].observer.Push(old, resp.Array)
	message := frame("pmessage", "*", "ch", "m")
	for _, at := range []topology.Node{"a", "b"} {
		c.conns[at].observer.Push(message, resp.Array)
	}
	c.took(message)
}

func TestAMovedSlotIsNotTold(t *testing.T) {
	c := newClient(t)
	c.ask("ssubscribe s")
	var at topology.Node
	for at = range c.conns {
		c.confirm(at)
	}
	c.took(confirmed("ssubscribe", "s", 1))
	other, limit := topology.Node("b"), 0
	if at == "b" {
		other, limit = "a", hashslot.Count
	}
	c.conns[at].observer.Push(confirmed("sunsubscribe", "s", 0), resp.Array)
	c.refreshed(clustertest.Split(t, limit))
	c.sent(other, "ssubscribe s")
	c.conns[other].observer.Push([]byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), resp.SimpleError)
	c.conns[other].sent = nil
	c.refreshed(c.view)
	c.confirm(other)
	message := frame("smessage", "s", "m")
	c.conns[other].observer.Push(message, resp.Array)
	c.took(message)
}

var (
	_ Session = (*client)(nil)
	_ Cluster = (*client)(nil)
	_ Conn    = (*conn)(nil)
)
