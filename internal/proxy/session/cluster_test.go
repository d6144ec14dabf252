package session

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// twoServers is a session in front of the servers a, at h:1, and b, at h:2. The test is the session's client, moves the
// bytes of its lanes, answers its commands, and has the view.
type twoServers struct {
	t      testing.TB
	s      *Session
	way    *cluster.Route
	at     topology.Node // of the lane that is about to be opened
	view   *topology.View
	silent topology.Node
	wait   time.Duration
	table  *command.Table

	mu    sync.Mutex
	then  []func()      // called after a refresh; guarded by mu, as a timer adds to it
	wires []*nodeWire   // guarded by mu
	up    chan struct{} // has a value for each lane that is connected
	got   strings.Builder

	turns bool                 // the test takes those of work aside
	aside func() (then func()) // the next one; nil: none

	isReal bool // not in virtual time
	quiet  bool // the client throws away what it gets
}

// nodeWire is a lane to one of the servers.
type nodeWire struct {
	*upstream.Stream
	c   *twoServers
	at  topology.Node
	raw []byte // taken, but not yet a whole command
}

// sending is a command that was sent, with the ASKING in front of it.
type sending struct {
	at  topology.Node
	raw string
	by  *nodeWire
}

// inFrontOfTwo runs a test of a session in front of two servers, in virtual time.
func inFrontOfTwo(t *testing.T, f func(t *testing.T, c *twoServers)) {
	t.Helper()
	socket := greeter(t, "-ERR refused\r\n")
	synctest.Test(t, func(t *testing.T) {
		c, end := newTwoServers(t, socket)
		defer end()
		f(t, c)
	})
}

// newTwoServers connects the session's lanes to a greeter.
func newTwoServers(t testing.TB, socket string) (c *twoServers, end func()) {
	t.Helper()
	e := envWith(t, upstream.Options{Addr: "unix:" + socket}, Limits{}) // a pin's goroutines read its socket, in no virtual time
	c = &twoServers{t: t, view: clustertest.Split(t, hashslot.Count/2), wait: time.Minute, table: e.Policies(), up: make(chan struct{}, 100)}
	s := New(clients.Origin{ID: 1, Addr: "test"}, e, c)
	way := cluster.New(spy{host{s}, c}, c, c.view)
	s.way, c.s, c.way = way, s, way
	c.locked(func() {
		for _, at := range []topology.Node{"a", "b"} {
			c.way.Conn(ordinaryRow, at)
		}
	})
	for range 2 {
		<-c.up
	}
	return c, func() { over(s) }
}

func (c *twoServers) View() *topology.View           { return c.view }
func (c *twoServers) Silent(at topology.Node) bool   { return at == c.silent }
func (c *twoServers) Refused(topology.RefusalReason) {}
func (c *twoServers) FailoverWait() time.Duration    { return c.wait }
func (c *twoServers) Away() bool                     { return c.s.proxy.Upstream.Away() }
func (c *twoServers) MaxShared() int64               { return c.s.proxy.Upstream.MaxShared() }
func (c *twoServers) Watch(func()) (stop func())     { return func() {} }

func (c *twoServers) Refresh(_ topology.Node, then func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.then = append(c.then, then)
}

func (c *twoServers) Flush() {
	for b, _ := c.s.NextWrite(nil); b != nil; b, _ = c.s.NextWrite(b) {
		if !c.quiet {
			c.got.Write(b)
		}
	}
}

func (c *twoServers) Hangup()      {}
func (c *twoServers) Yield()       {}
func (c *twoServers) Resume()      {}
func (c *twoServers) Unread() bool { return false }
func (c *twoServers) Left() bool   { return false }

// Driver is that of the lane that is about to be opened.
func (c *twoServers) Driver() upstream.Driver { return nodeDriver{c, c.at} }

// spy is the session as its route sees it. It tells the test which lane is about to be opened.
type spy struct {
	host
	c *twoServers
}

// Aside implements cluster.Host. The test may have the turns of the work.
func (s spy) Aside(work func() (then func())) {
	if !s.c.turns {
		s.host.Aside(work)
		return
	}
	s.c.aside = work
}

func (s spy) Lane(row *command.Row, at topology.Node) *upstream.Lane {
	s.c.at = at
	return s.host.Lane(row, at)
}

type nodeDriver struct {
	c  *twoServers
	at topology.Node
}

// Attach implements upstream.Driver.
func (d nodeDriver) Attach(w *upstream.Stream) upstream.Mover {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	wire := &nodeWire{Stream: w, c: d.c, at: d.at}
	d.c.wires = append(d.c.wires, wire)
	return wire
}

// Wake implements upstream.Mover.
func (*nodeWire) Wake() {}

// Drive implements upstream.Mover.
func (w *nodeWire) Drive(nc net.Conn, stop <-chan struct{}) error {
	w.Open()
	w.c.up <- struct{}{}
	<-stop
	return nc.Close()
}

// locked runs f with the session locked.
func (c *twoServers) locked(f func()) {
	c.s.mu.Lock()
	defer c.s.unlock()
	f()
}

// ask has the client send a command.
func (c *twoServers) ask(raw []byte) {
	if alive, _ := c.s.Feed(raw); !alive {
		c.t.Fatalf("the session ended at %q", raw)
	}
}

// probe is the start of a lane's own question whether Redis still answers.
const probe = "*2\r\n$4\r\nPING\r\n"

// take returns what has been sent to the servers since the last call, in the order of each.
func (c *twoServers) take() (list []sending) {
	if !c.isReal {
		synctest.Wait() // a lane may be connected
	}
	c.mu.Lock()
	wires := slices.Clone(c.wires)
	c.mu.Unlock()
	slices.SortStableFunc(wires, func(a, b *nodeWire) int { return strings.Compare(string(a.at), string(b.at)) })
	for _, w := range wires {
		for b := w.Take(nil); b != nil; b = w.Take(nil) {
			w.raw = append(w.raw, b...)
		}
		asking := ""
		for guard := resp.NewGuard(); ; {
			f, n, err := guard.Next(w.raw)
			if n == 0 || err != nil {
				break
			}
			raw := string(f.Raw)
			switch w.raw = w.raw[n:]; {
			case raw == string(command.Asking):
				asking = raw
				continue
			case !c.isReal && strings.HasPrefix(raw, probe): // the lane stands still
				continue
			}
			list = append(list, sending{w.at, asking + raw, w})
			asking = ""
		}
	}
	return list
}

// answer answers a command that was sent.
func (c *twoServers) answer(to sending, reply string) {
	if err := to.by.Feed([]byte(reply)); err != nil {
		c.t.Fatal(err)
	}
	c.Flush()
}

// sent takes what has been sent, which is one command to that server.
func (c *twoServers) sent(at topology.Node, raw string) sending {
	c.t.Helper()
	list := c.take()
	if len(list) != 1 || list[0].at != at || list[0].raw != raw {
		c.t.Fatalf("sent: %v, want %q to %s", list, raw, at)
	}
	return list[0]
}

// clientGot checks all that the client has got.
func (c *twoServers) clientGot(want string) {
	c.t.Helper()
	if got := c.got.String(); got != want {
		c.t.Errorf("the client got %q, want %q", got, want)
	}
}

// refreshed has the view replaced.
func (c *twoServers) refreshed(v *topology.View) {
	c.view = v
	c.mu.Lock()
	then := c.then
	c.then = nil
	c.mu.Unlock()
	for _, f := range then {
		if f != nil {
			f()
		}
	}
}

func encoded(text string) []byte {
	return resp.AppendCommand(nil, strings.Fields(text)...)
}

// low and high are keys of the servers a and b.
func (c *twoServers) low() string {
	return c.key(func(slot int) bool { return slot < hashslot.Count/2 })
}

func (c *twoServers) high() string {
	return c.key(func(slot int) bool { return slot >= hashslot.Count/2 })
}

func (c *twoServers) key(of func(slot int) bool) string {
	for i := range 100 {
		if key := fmt.Sprint("key", i); of(hashslot.Of([]byte(key))) {
			return key
		}
	}
	c.t.Fatal("no key")
	return ""
}

func TestACommandOfOneKeyDoesNotAllocate(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		raw, reply := encoded("GET "+c.low()), []byte("$1\r\nx\r\n")
		wire, spare := c.wires[0], []byte(nil)
		round := func() {
			c.ask(raw)
			spare = wire.Take(spare)
			_ = wire.Take(nil)
			if err := wire.Feed(reply); err != nil {
				t.Fatal(err)
			}
			c.Flush()
		}
		c.quiet = true
		for range 4 { // buffers find their sizes
			round()
		}
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if n := c.way.Bytes(); n != 0 {
			t.Errorf("%d bytes of answered commands are counted", n)
		}
	})
}

// Others learn by a message what was written before it. So it waits, and what is sent behind it waits for its answer.
func TestAMessageWaitsForWhatWasWrittenBefore(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		for message, key := range map[string]string{"PUBLISH c m": c.high(), "SPUBLISH " + c.high() + " m": c.low()} {
			var sent [3]sending
			for i, command := range []string{"SET " + key + " v", message, "GET " + key} {
				c.ask(encoded(command))
				if i > 0 {
					if early := c.take(); len(early) > 0 {
						t.Fatalf("%s: sent before the answer to %q: %v", message, sent[i-1].raw, early)
					}
					c.answer(sent[i-1], ":1\r\n")
				}
				list := c.take()
				if len(list) != 1 || list[0].raw != string(encoded(command)) {
					t.Fatalf("%s: sent: %v", message, list)
				}
				sent[i] = list[0]
			}
			c.answer(sent[2], ":1\r\n")
			if sent[0].at == sent[1].at {
				t.Errorf("%s goes to the server of %s", message, key)
			}
		}
	})
}

// The servers do not hear of a change at the same time. Commands that they send to each other wait for a new view.
func TestACommandFollowsOneRedirectionAtOnce(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		key := c.low()
		slot, get := hashslot.Of([]byte(key)), encoded("GET "+key)
		c.ask(get)
		c.answer(c.sent("a", string(get)), fmt.Sprintf("-MOVED %d h:2\r\n", slot))
		c.answer(c.sent("b", string(get)), fmt.Sprintf("-MOVED %d h:1\r\n", slot))
		if again := c.take(); len(again) > 0 {
			t.Fatalf("sent again before the view is fresh: %v", again)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		c.refreshed(c.view)
		c.sent("a", string(get))
	})
}

// A slot may move to a server that holds the command back before it hands over to its replica. The time for refusals
// begins anew then. It does not begin anew with a view that takes long.
func TestACommandThatAServerHasHeldBackIsSentAgain(t *testing.T) {
	for name, held := range map[string]bool{"a server holds it back": true, "the view takes long": false} {
		t.Run(name, func(t *testing.T) {
			inFrontOfTwo(t, func(t *testing.T, c *twoServers) { heldBack(t, c, held) })
		})
	}
}

func heldBack(t *testing.T, c *twoServers, held bool) {
	c.wait = time.Second
	key := c.low()
	slot, get := hashslot.Of([]byte(key)), encoded("GET "+key)
	c.ask(get)
	c.answer(c.take()[0], "-CLUSTERDOWN Hash slot not served\r\n")
	if !held {
		time.Sleep(2 * time.Second)
	}
	c.refreshed(clustertest.Split(t, 0))
	first := c.sent("b", string(get))
	if held {
		time.Sleep(2 * time.Second)
	}
	c.answer(first, fmt.Sprintf("-MOVED %d h:1\r\n", slot))
	c.refreshed(clustertest.Split(t, hashslot.Count))
	if again := c.take(); held != (len(again) == 1) {
		t.Errorf("sent: %v; the client got %q", again, c.got.String())
	}
}

// While a slot moves, some of its keys are at one server and the others at the other. A command is not refused because
// one of another key has been carried out.
func TestACommandIsSentAgainBehindThoseOfOtherKeys(t *testing.T) {
	for _, address := range []string{"h:2", ":2"} { // without a host, that of the server which was asked is meant
		sentAgainBehindOthers(t, address)
	}
}

func sentAgainBehindOthers(t *testing.T, address string) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		key := "{" + c.low() + "}"
		asking := fmt.Sprintf("-ASK %d %s\r\n", hashslot.Of([]byte(key)), address)
		for _, line := range []string{"INCR %s1", "INCR %s2", "INCR %s1", "GET %s3"} {
			c.ask(encoded(fmt.Sprintf(line, key)))
		}
		list := c.take()
		for i, reply := range []string{asking, ":7\r\n", asking, "$-1\r\n"} {
			c.answer(list[i], reply)
		}
		for i, want := range []int{0, 2} {
			again := c.sent("b", string(command.Asking)+list[want].raw)
			c.answer(again, fmt.Sprintf("+OK\r\n:%d\r\n", i+1))
		}
		c.clientGot(":1\r\n:7\r\n:2\r\n$-1\r\n")
	})
}

// A server that has refused a command may carry out the next one of its key, which is on its way already. So that comes
// first.
func TestARefusedCommandWaitsForThoseBehindIt(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		key, other := c.low(), c.low()+"x"
		for hashslot.Of([]byte(other)) >= hashslot.Count/2 {
			other += "x"
		}
		c.ask(encoded("SET " + key + " 1"))
		c.ask(encoded("SET " + other + " 2"))
		c.ask(encoded("SET " + key + " 3"))
		list := c.take()
		loading := "-LOADING Redis is loading the dataset in memory\r\n"
		c.answer(list[0], loading)
		c.answer(list[1], loading)
		c.ask(encoded("SET " + key + " 4"))
		if list := c.take(); len(c.then) > 0 || len(list) > 0 {
			t.Fatalf("a command does not wait: %v", list)
		}
		c.answer(list[2], "+OK\r\n")
		c.refreshed(c.view)
		c.answer(c.sent("a", string(encoded("SET "+other+" 2"))), "+OK\r\n")
		c.answer(c.sent("a", string(encoded("SET "+key+" 4"))), "+OK\r\n")
		c.clientGot(loading + strings.Repeat("+OK\r\n", 3))
	})
}

// A command that is refused again is still in front of those of its key.
func TestACommandThatIsRefusedAgainKeepsItsPlace(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		incr, get := encoded("INCR "+c.low()), encoded("GET "+c.low())
		c.ask(incr)
		c.ask(get)
		const loading = "-LOADING Redis is loading the dataset in memory\r\n"
		for _, one := range c.take() {
			c.answer(one, loading)
		}
		c.refreshed(c.view)
		c.answer(c.sent("a", string(incr)), loading)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		c.refreshed(c.view)
		c.answer(c.sent("a", string(incr)), ":1\r\n")
		c.answer(c.sent("a", string(get)), "$1\r\n1\r\n")
		c.clientGot(":1\r\n$1\r\n1\r\n")
	})
}

// While a command waits for its server, the session reads nothing new. The keys that wait do not wait for each other.
func TestASessionPausesBehindARefusal(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		one, two := "{"+c.low()+"}1", "{"+c.low()+"}2"
		asking := fmt.Sprintf("-ASK %d h:2\r\n", hashslot.Of([]byte(one)))
		for _, line := range []string{"INCR " + one, "INCR " + two, "GET " + one, "GET " + c.high()} {
			c.ask(encoded(line))
		}
		list := c.take()
		for i, words := range []string{asking, "-CLUSTERDOWN Hash slot not served\r\n", asking} {
			c.answer(list[i], words)
		}
		c.ask(encoded("GET " + c.low()))
		if early := c.take(); len(early) > 0 {
			t.Fatalf("sent before what is on its way has come in: %v", early)
		}
		c.answer(list[3], "$1\r\nx\r\n")
		for _, line := range []string{"INCR ", "GET "} {
			c.answer(c.sent("b", string(command.Asking)+string(encoded(line+one))), "+OK\r\n:1\r\n")
		}
		c.refreshed(clustertest.Split(t, 0))
		c.answer(c.sent("b", string(encoded("INCR "+two))), ":2\r\n")
		c.answer(c.sent("b", string(encoded("GET "+c.low()))), ":3\r\n")
		c.clientGot(":1\r\n:2\r\n:1\r\n$1\r\nx\r\n:3\r\n")
	})
}

// The time for refusals is that of the whole pause. All that is left then is refused.
func TestAPauseEnds(t *testing.T) {
	const down, given = "-CLUSTERDOWN Hash slot not served\r\n", "-CLUSTERDOWN no server of the slot is reachable, nothing was done\r\n"
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		c.wait = time.Second
		key := c.low()
		moved := fmt.Sprintf("-MOVED %d h:3\r\n", hashslot.Of([]byte(key)))
		for _, line := range []string{"INCR " + key, "GET " + key, "GET " + key + "x"} {
			c.ask(encoded(line))
		}
		list := c.take()
		for i, words := range []string{down, moved, ":1\r\n"} {
			c.answer(list[i], words)
		}
		time.Sleep(c.wait)
		c.refreshed(c.view)
		c.answer(c.sent("a", string(encoded("INCR "+key))), down)
		c.clientGot(down + given + ":1\r\n")
		c.ask(encoded("GET " + key))
		c.answer(c.sent("a", string(encoded("GET "+key))), ":2\r\n")
	})
}

// A command that has been refused for too long leaves the server to the one behind it.
func TestACommandGivenUpIsFollowedByTheNext(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		c.wait = time.Second
		key := c.low()
		down := "-CLUSTERDOWN Hash slot not served\r\n"
		c.ask(encoded("INCR " + key))
		c.answer(c.take()[0], down)
		time.Sleep(c.wait)
		c.ask(encoded("GET " + key))
		c.refreshed(c.view)
		for _, want := range []string{"INCR " + key, "GET " + key} {
			c.answer(c.sent("a", string(encoded(want))), down)
		}
		time.Sleep(c.wait)
		c.refreshed(c.view)
		c.answer(c.take()[0], "$1\r\nx\r\n")
		c.clientGot(down + "$1\r\nx\r\n")
	})
}

func TestOnlyServersOfTheViewAreAsked(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		get, elsewhere := encoded("GET "+c.low()), fmt.Sprintf("-ASK %d stranger:1\r\n", hashslot.Of([]byte(c.low())))
		c.ask(get)
		c.answer(c.take()[0], elsewhere)
		c.refreshed(c.view)
		again := c.sent("a", string(get))
		c.wait = 0
		c.answer(again, elsewhere)
		if got := c.got.String(); !strings.HasPrefix(got, "-CLUSTERDOWN ") {
			t.Errorf("the client got %q", got)
		}
	})
}

// A lane that refuses everything says nothing of a request that was not sent by it.
func TestARequestWithoutAServerWaitsForOne(t *testing.T) {
	without, err := upstream.New(upstream.Options{Addr: "h:1", Logger: zap.NewNop()}) // no places for lanes
	if err != nil {
		t.Fatal(err)
	}
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		whole := c.view
		c.view = clustertest.View(t, clustertest.Share{ID: "a", Address: "h:1", To: hashslot.Count/2 - 1})
		c.locked(func() {
			c.s.leaveLane()
			c.s.lane = without.Lanes.Lane(upstream.Identity{User: "u", Proto: 2}, "a", nil, "", upstream.Reads)
		})
		c.ask(encoded("GET " + c.high()))
		c.refreshed(whole)
		if sent := c.take(); len(sent) != 1 || sent[0].at != "b" || c.got.Len() > 0 {
			t.Errorf("sent: %v; the client got %q", sent, c.got.String())
		}
	})
}

// A server that has been demoted refuses what all servers are to do. It concerns the successor then, unless it is about
// the server itself.
func TestWhatAllServersDoGoesToTheSuccessor(t *testing.T) {
	for _, follows := range []bool{true, false} {
		inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
			c.locked(func() {
				for i, at := range []topology.Node{"a", "b"} {
					p := c.way.Copied(c.table.Lookup([]byte("flushall")), encoded("FLUSHALL"), command.Aim{Slot: -2 - i, At: at})
					if p.Bound = cluster.ToServer; follows {
						p.Bound = cluster.ToHeir
					}
					p.Post(nil)
				}
			})
			both := c.take()
			c.answer(both[0], "-READONLY You can't write against a read only replica.\r\n")
			c.answer(both[1], "+OK\r\n") // has no order with the other part
			c.refreshed(clustertest.Split(t, 0))
			want := topology.Node("a")
			if follows {
				want = "b"
			}
			c.answer(c.sent(want, string(encoded("FLUSHALL"))), "+OK\r\n")
			c.clientGot("+OK\r\n+OK\r\n")
		})
	}
}

func TestARefusalOfAnotherSlotIsTheCommandsOwnReply(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		c.ask(encoded("GET " + c.low()))
		words := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(c.high())))
		c.answer(c.take()[0], words)
		c.clientGot(words)
	})
}

func TestAKeylessCommandAvoidsASilentServer(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		c.silent = "a"
		for range 20 {
			if at := c.way.AnyServer(); at != "b" {
				t.Fatalf("sent to %s", at)
			}
		}
	})
}

// A client chooses the number of its refused commands, and of those behind them. Their cost must not grow with the
// square of it.
func BenchmarkRefusedPipeline(b *testing.B) {
	for _, n := range []int{200, 2000} {
		b.Run(fmt.Sprint("moved/", n), func(b *testing.B) { refusePipeline(b, n, time.Minute) })
		b.Run(fmt.Sprint("given up/", n), func(b *testing.B) { refusePipeline(b, n, 0) })
	}
}

func refusePipeline(b *testing.B, n int, wait time.Duration) {
	b.Helper()
	c, end := newTwoServers(b, greeter(b, "-ERR refused\r\n"))
	defer end()
	c.isReal = true
	moved, other := encoded("GET "+c.low()), encoded("GET "+c.high())
	refusal := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(c.low())))
	answer := func(words string) {
		for _, one := range c.take() {
			switch token, isProbe := strings.CutPrefix(one.raw, probe); {
			case isProbe:
				c.answer(one, token)
			case one.at == "a":
				c.answer(one, refusal)
			default:
				c.answer(one, words)
			}
		}
	}
	for b.Loop() {
		c.wait = time.Minute
		for range n / 2 {
			c.ask(moved)
			c.ask(other)
		}
		answer("+OK\r\n")
		for c.wait = wait; c.s.out.Slots.Due() > 0; c.refreshed(c.view) {
			if wait == 0 {
				answer("-CLUSTERDOWN Hash slot not served\r\n")
			} else {
				answer("+OK\r\n")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/command")
}

// transaction has the client send a transaction, and returns it as it is sent.
func (c *twoServers) transaction(lines ...string) (raw string) {
	for _, line := range append(append([]string{"MULTI"}, lines...), "EXEC") {
		c.ask(encoded(line))
		raw += string(encoded(line))
	}
	return raw
}

// whole takes a transaction that has been sent to a server.
func (c *twoServers) whole(at topology.Node, raw string) sending {
	c.t.Helper()
	got, to := "", sending{}
	for _, to = range c.take() {
		if got += to.raw; to.at != at {
			c.t.Errorf("%q is sent to %s", to.raw, to.at)
		}
	}
	if got != raw {
		c.t.Fatalf("sent: %q, want %q", got, raw)
	}
	return to
}

// mayMulti has the session learn that the client has the right to MULTI.
func (c *twoServers) mayMulti() {
	c.ask(encoded("MULTI"))
	c.answer(c.take()[0], "+OK\r\n*0\r\n")
	c.ask(encoded("DISCARD"))
	c.got.Reset()
}

func TestATransactionIsSentAsAWhole(t *testing.T) {
	const ok, queued, aborted = "+OK\r\n", "+QUEUED\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n"
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		c.wait = time.Second
		c.mayMulti()
		key := c.low()
		slot := hashslot.Of([]byte(key))
		raw := c.transaction("PING", "INCR "+key)
		c.ask(encoded("GET " + c.high())) // waits
		c.answer(c.whole("a", raw), ok+queued+fmt.Sprintf("-MOVED %d h:2\r\n", slot)+aborted)
		c.answer(c.whole("b", raw), ok+queued+"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"+aborted)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		c.refreshed(c.view)
		c.answer(c.whole("a", raw), ok+queued+queued+fmt.Sprintf("-ASK %d h:2\r\n", slot))
		c.answer(c.whole("b", string(command.Asking)+raw), ok+ok+queued+queued+"*2\r\n+PONG\r\n:1\r\n")
		c.answer(c.sent("b", string(encoded("GET "+c.high()))), "$-1\r\n")
		c.clientGot(ok + queued + queued + "*2\r\n+PONG\r\n:1\r\n$-1\r\n")
		for _, refusal := range []string{fmt.Sprintf("-MOVED %d h:3\r\n", slot), "-OOM x\r\n"} {
			c.got.Reset()
			raw = c.transaction("INCR " + key)
			for range 2 {
				c.answer(c.whole("a", raw), ok+refusal+aborted)
				if refusal == "-OOM x\r\n" {
					break
				}
				time.Sleep(c.wait)
				synctest.Wait()
				c.refreshed(c.view)
			}
			because := strings.TrimPrefix(refusal, "-")
			if refusal != "-OOM x\r\n" {
				because = "CLUSTERDOWN no server of the slot is reachable, nothing was done\r\n"
			}
			c.clientGot(ok + queued + "-EXECABORT Transaction discarded because of: " + because)
		}
	})
}

// The right to MULTI is asked for once for each identity.
func TestTheFirstMultiIsAskedFor(t *testing.T) {
	const noperm = "-NOPERM x\r\n"
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		empty := string(command.Multi) + string(command.Exec)
		c.locked(func() { c.s.ident = upstream.Identity{} }) // is one, too
		for _, answers := range []string{noperm + "-ERR EXEC without MULTI\r\n", "+OK\r\n*0\r\n"} {
			c.ask(encoded("MULTI"))
			list := c.take()
			if len(list) != 2 || list[0].raw+list[1].raw != empty {
				t.Fatalf("sent: %v", list)
			}
			c.answer(list[0], answers)
		}
		for _, line := range []string{"DISCARD", "MULTI", "EXEC"} {
			c.ask(encoded(line))
		}
		c.answer(c.whole("b", empty), "+OK\r\n*0\r\n")
		c.clientGot(noperm + "+OK\r\n+OK\r\n+OK\r\n*0\r\n")
		c.locked(func() { c.s.ident = upstream.Identity{User: "u"} })
		c.ask(encoded("MULTI"))
		c.whole("b", empty)
	})
}
