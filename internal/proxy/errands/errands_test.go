package errands

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// client is a session without I/O in front of the servers a, at h:1, and b, at h:2. The test answers the commands.
type client struct {
	t       testing.TB
	errands Errands
	table   *command.Table
	slots   reply.Queue[topology.Node, reply.Handler]
	view    *topology.View
	silent  topology.Node
	wait    time.Duration

	sent  []sending
	mu    sync.Mutex
	then  []func() // called after a refresh; guarded by mu, as a timer adds to it
	aside []func() func()
	got   strings.Builder
	args  [][]byte
	quiet bool // what is sent and answered is not recorded
}

// sending is a transmission.
type sending struct {
	at  topology.Node
	raw string
	id  reply.ID
	n   int
}

func newClient(t testing.TB) *client {
	c := &client{t: t, table: command.NewTable(commands.BuiltIn(), nil), view: clustertest.Split(t, hashslot.Count/2), wait: time.Minute}
	c.errands.Open(c, c)
	return c
}

func (c *client) View() *topology.View                  { return c.view }
func (c *client) Silent(at topology.Node) bool          { return at == c.silent }
func (c *client) Refused(topology.RefusalReason)        {}
func (c *client) FailoverWait() time.Duration           { return c.wait }
func (c *client) Gone() bool                            { return false }
func (c *client) Pass(at reply.ID, b []byte, more bool) { c.Put(at, b, more) }
func (c *client) Refusal() []byte                       { return []byte("-REFUSED\r\n") }

func (c *client) Refuse(at reply.ID, _ int)         { c.Put(at, c.Refusal(), false) }
func (c *client) Held(int)                          {}
func (c *client) Resume()                           {}
func (c *client) Aside(work func() (then func()))   { c.aside = append(c.aside, work) }
func (c *client) Hopeless() bool                    { return false }
func (c *client) Leave(func(at topology.Node) bool) {}
func (c *client) GiveUp(id reply.ID)                { c.slots.Answer(id, 1) }

func (c *client) Take(at topology.Node, h reply.Handler, _ int) reply.ID {
	return c.slots.Add(at, h, 1)
}

func (c *client) Refresh(_ topology.Node, then func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.then = append(c.then, then)
}

func (c *client) Put(at reply.ID, b []byte, more bool) {
	if c.slots.Put(at, b, more) && !c.quiet {
		c.got.Write(b)
	}
}

func (c *client) Answered(id reply.ID, n int) {
	c.slots.Answer(id, n)
	for b := c.slots.Next(); b != nil; b = c.slots.Next() {
		c.got.Write(b)
	}
}

func (c *client) Transmit(at topology.Node, raw []byte, id reply.ID, n int) {
	if c.quiet {
		c.sent = append(c.sent, sending{at, "", id, n})
		return
	}
	c.sent = append(c.sent, sending{at, string(raw), id, n})
}

func (c *client) Lose(id reply.ID) {
	h, _ := c.slots.Handler(id)
	if !h.(*Errand).Unsent() {
		h.Lost(id, 1, false)
		c.Answered(id, 1)
	}
}

func (c *client) Do(f func()) bool {
	f()
	return true
}

// ask routes a command.
func (c *client) ask(raw []byte) {
	c.args = resp.Split(raw, c.args[:0])
	e := &c.errands
	e.Look(c.table.Lookup(c.args[0]), c.args)
	e.Target = e.Owner(max(e.Slot, 0))
	e.Send(raw, nil)
}

// take returns the transmissions since the last call.
func (c *client) take() []sending {
	list := slices.Clone(c.sent)
	c.sent = c.sent[:0]
	return list
}

// answer answers a transmission.
func (c *client) answer(to sending, reply string) {
	h, due := c.slots.Handler(to.id)
	if !due {
		c.t.Fatalf("no reply is due to %q", to.raw)
	}
	n := h.Take(to.id, []byte(reply), to.n, false)
	c.Answered(to.id, n)
}

// refreshed has the view replaced.
func (c *client) refreshed(v *topology.View) {
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

func words(text string) []byte {
	return resp.AppendCommand(nil, strings.Fields(text)...)
}

// low and high are keys of the servers a and b.
func (c *client) low() string { return c.key(func(slot int) bool { return slot < hashslot.Count/2 }) }

func (c *client) high() string { return c.key(func(slot int) bool { return slot >= hashslot.Count/2 }) }

func (c *client) key(of func(slot int) bool) string {
	for i := range 100 {
		if key := fmt.Sprint("key", i); of(hashslot.Of([]byte(key))) {
			return key
		}
	}
	c.t.Fatal("no key")
	return ""
}

func TestACommandOfOneKeyDoesNotAllocate(t *testing.T) {
	c := newClient(t)
	c.quiet = true
	raw, reply := words("GET "+c.low()), []byte("$1\r\nx\r\n")
	round := func() {
		c.ask(raw)
		to := c.sent[0]
		c.sent = c.sent[:0]
		h, _ := c.slots.Handler(to.id)
		c.Answered(to.id, h.Take(to.id, reply, 1, false))
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := c.errands.Kept(); n != 0 {
		t.Errorf("%d bytes of answered commands are counted", n)
	}
}

func TestRefusedCommandsAreSentAgainInTheirOrder(t *testing.T) {
	c := newClient(t)
	key := c.low()
	moved := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(key)))
	for i := range 3 {
		c.ask(words(fmt.Sprint("APPEND ", key, " ", i)))
	}
	first := c.take()
	for _, one := range first {
		if one.at != "a" {
			t.Fatalf("%q is sent to %s", one.raw, one.at)
		}
		c.answer(one, moved)
	}
	for i, n := range []int{1, 2} { // before the view is fresh
		again := c.take()
		if len(again) != n {
			t.Fatalf("sent: %v", again)
		}
		for j, one := range again {
			if one.at != "b" || one.raw != first[i+j].raw {
				t.Fatalf("command %d: %v", i+j, one)
			}
			c.answer(one, fmt.Sprintf(":%d\r\n", i+j+1))
		}
	}
	if got := c.got.String(); got != ":1\r\n:2\r\n:3\r\n" {
		t.Errorf("the client got %q", got)
	}
}

// The servers do not hear of a change at the same time. Commands that they send to each other wait for a new view.
func TestACommandFollowsOneRedirectionAtOnce(t *testing.T) {
	synctest.Test(t, commandFollowsOneRedirection)
}

func commandFollowsOneRedirection(t *testing.T) {
	c := newClient(t)
	key := c.low()
	slot := hashslot.Of([]byte(key))
	c.ask(words("GET " + key))
	c.answer(c.take()[0], fmt.Sprintf("-MOVED %d h:2\r\n", slot))
	again := c.take()
	if len(again) != 1 || again[0].at != "b" {
		t.Fatalf("sent: %v", again)
	}
	c.answer(again[0], fmt.Sprintf("-MOVED %d h:1\r\n", slot))
	if again = c.take(); len(again) > 0 {
		t.Fatalf("sent again before the view is fresh: %v", again)
	}
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	c.refreshed(c.view)
	if again = c.take(); len(again) != 1 || again[0].at != "a" {
		t.Fatalf("sent: %v", again)
	}
}

// A slot may move to a server that holds the command back before it hands over to its replica. The time for refusals begins anew then. It does not begin anew
// with a view that takes long.
func TestACommandThatAServerHasHeldBackIsSentAgain(t *testing.T) {
	for name, held := range map[string]bool{"a server holds it back": true, "the view takes long": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { heldBack(t, held) })
		})
	}
}

func heldBack(t *testing.T, held bool) {
	c := newClient(t)
	c.wait = time.Second
	key := c.low()
	slot := hashslot.Of([]byte(key))
	c.ask(words("GET " + key))
	c.answer(c.take()[0], "-CLUSTERDOWN Hash slot not served\r\n")
	if !held {
		time.Sleep(2 * time.Second)
	}
	c.refreshed(clustertest.Split(t, 0))
	again := c.take()
	if len(again) != 1 || again[0].at != "b" {
		t.Fatalf("sent: %v", again)
	}
	if held {
		time.Sleep(2 * time.Second)
	}
	c.answer(again[0], fmt.Sprintf("-MOVED %d h:1\r\n", slot))
	c.refreshed(clustertest.Split(t, hashslot.Count))
	if again = c.take(); held != (len(again) == 1) {
		t.Errorf("sent: %v; the client got %q", again, c.got.String())
	}
}

// The servers do not hear of a change at the same time, so the refreshed view may be older than the refusal.
func TestARefusalIsNewerThanTheView(t *testing.T) {
	c := newClient(t)
	key := c.low()
	c.ask(words("GET " + key))
	c.answer(c.take()[0], fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(key))))
	c.refreshed(c.view)
	again := c.take()
	if len(again) != 1 || again[0].at != "b" {
		t.Fatalf("sent: %v", again)
	}
}

func TestACommandIsNotSentAgainBehindItsSuccessor(t *testing.T) {
	c := newClient(t)
	key := c.low()
	c.ask(words("SET " + key + " 1"))
	c.ask(words("SET " + key + " 2"))
	list := c.take()
	c.answer(list[0], fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(key))))
	c.answer(list[1], "+OK\r\n")
	c.refreshed(clustertest.Split(t, 0))
	if again := c.take(); len(again) > 0 {
		t.Errorf("sent again: %v", again)
	}
	if got := c.got.String(); !strings.HasPrefix(got, "-NOUPSTREAM ") || !strings.HasSuffix(got, "\r\n+OK\r\n") {
		t.Errorf("the client got %q", got)
	}
}

// While a slot moves, some of its keys are at one server and the others at the other. A command is not refused because one of another key has been carried out.
func TestACommandIsSentAgainBehindThoseOfOtherKeys(t *testing.T) {
	c := newClient(t)
	key := "{" + c.low() + "}"
	asking := fmt.Sprintf("-ASK %d h:2\r\n", hashslot.Of([]byte(key)))
	for _, line := range []string{"INCR %s1", "INCR %s2", "INCR %s1", "GET %s3"} {
		c.ask(words(fmt.Sprintf(line, key)))
	}
	list := c.take()
	for i, reply := range []string{asking, ":7\r\n", asking, "$-1\r\n"} {
		c.answer(list[i], reply)
	}
	for i, want := range []int{0, 2} {
		again := c.take()
		if len(again) != 1 || again[0].at != "b" || !strings.HasSuffix(again[0].raw, list[want].raw) {
			t.Fatalf("sent: %v", again)
		}
		c.answer(again[0], fmt.Sprintf("+OK\r\n:%d\r\n", i+1))
	}
	if got := c.got.String(); got != ":1\r\n:7\r\n:2\r\n$-1\r\n" {
		t.Errorf("the client got %q", got)
	}
}

// A server that has refused a command may carry out the next one of its key, which is on its way already. So that comes first.
func TestARefusedCommandWaitsForThoseBehindIt(t *testing.T) {
	c := newClient(t)
	key, other := c.low(), c.low()+"x"
	for hashslot.Of([]byte(other)) >= hashslot.Count/2 {
		other += "x"
	}
	c.ask(words("SET " + key + " 1"))
	c.ask(words("SET " + other + " 2"))
	c.ask(words("SET " + key + " 3"))
	list := c.take()
	loading := "-LOADING Redis is loading the dataset in memory\r\n"
	c.answer(list[0], loading)
	c.answer(list[1], loading)
	c.ask(words("SET " + key + " 4"))
	if len(c.then) > 0 || len(c.sent) > 0 {
		t.Fatalf("a command does not wait: %v", c.sent)
	}
	c.answer(list[2], "+OK\r\n")
	again := c.take()
	if len(again) != 1 || again[0].raw != string(words("SET "+key+" 4")) {
		t.Fatalf("sent: %v", again)
	}
	c.answer(again[0], "+OK\r\n")
	c.refreshed(c.view)
	again = c.take()
	if len(again) != 1 || again[0].raw != string(words("SET "+other+" 2")) {
		t.Fatalf("sent: %v", again)
	}
	c.answer(again[0], "+OK\r\n")
	if got, want := c.got.String(), loading+strings.Repeat("+OK\r\n", 3); got != want {
		t.Errorf("the client got %q, want %q", got, want)
	}
}

// While a command waits for its server, those of its key wait behind it, and those of other keys go on.
func TestCommandsWaitForThoseOfTheirKey(t *testing.T) {
	c := newClient(t)
	key := c.low()
	c.ask(words("INCR " + key))
	c.answer(c.take()[0], "-CLUSTERDOWN Hash slot not served\r\n")
	c.ask(words("GET " + key))
	c.ask(words("GET " + c.high()))
	sent := c.take()
	if len(sent) != 1 || sent[0].at != "b" {
		t.Fatalf("sent: %v", sent)
	}
	c.answer(sent[0], "$1\r\nx\r\n")
	c.refreshed(clustertest.Split(t, 0))
	for _, want := range []string{"INCR " + key, "GET " + key} {
		again := c.take()
		if len(again) != 1 || again[0].at != "b" || again[0].raw != string(words(want)) {
			t.Fatalf("sent: %v, want %s", again, want)
		}
		c.answer(again[0], ":1\r\n")
	}
	if got := c.got.String(); got != ":1\r\n:1\r\n$1\r\nx\r\n" {
		t.Errorf("the client got %q", got)
	}
}

// A command that has been refused for too long leaves the server to the one behind it.
func TestACommandGivenUpIsFollowedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.wait = time.Second
		key := c.low()
		down := "-CLUSTERDOWN Hash slot not served\r\n"
		c.ask(words("INCR " + key))
		c.answer(c.take()[0], down)
		time.Sleep(c.wait)
		c.ask(words("GET " + key))
		c.refreshed(c.view)
		for _, want := range []string{"INCR " + key, "GET " + key} {
			again := c.take()
			if len(again) != 1 || again[0].raw != string(words(want)) {
				t.Fatalf("sent: %v, want %s", again, want)
			}
			c.answer(again[0], down)
		}
		time.Sleep(c.wait)
		c.refreshed(c.view)
		c.answer(c.take()[0], "$1\r\nx\r\n")
		if got := c.got.String(); got != down+"$1\r\nx\r\n" {
			t.Errorf("the client got %q", got)
		}
	})
}

func TestAskedCommandsFollowAnAsking(t *testing.T) {
	c := newClient(t)
	key := c.low()
	c.ask(words("GET " + key))
	c.answer(c.take()[0], fmt.Sprintf("-ASK %d h:2\r\n", hashslot.Of([]byte(key))))
	again := c.take()
	if len(again) != 1 || again[0].at != "b" || again[0].n != 2 || again[0].raw != string(command.Asking)+string(words("GET "+key)) {
		t.Fatalf("sent: %v", again)
	}
	c.answer(again[0], "+OK\r\n$1\r\nx\r\n")
	if got := c.got.String(); got != "$1\r\nx\r\n" {
		t.Errorf("the client got %q", got)
	}
}

func TestOnlyServersOfTheViewAreAsked(t *testing.T) {
	c := newClient(t)
	key := c.low()
	c.ask(words("GET " + key))
	c.answer(c.take()[0], fmt.Sprintf("-ASK %d stranger:1\r\n", hashslot.Of([]byte(key))))
	c.refreshed(c.view)
	again := c.take()
	if len(again) != 1 || again[0].at != "a" {
		t.Fatalf("sent: %v", again)
	}
	c.wait = 0
	c.answer(again[0], fmt.Sprintf("-ASK %d stranger:1\r\n", hashslot.Of([]byte(key))))
	if got := c.got.String(); !strings.HasPrefix(got, "-NOUPSTREAM ") {
		t.Errorf("the client got %q", got)
	}
}

// A server that has been demoted refuses what all servers are to do. It concerns the successor then, unless it is about the server itself.
func TestWhatAllServersDoGoesToTheSuccessor(t *testing.T) {
	for _, follows := range []bool{true, false} {
		c := newClient(t)
		e := &c.errands
		e.Look(c.table.Lookup([]byte("flushall")), nil)
		e.Fixed, e.Heirs = !follows, follows
		e.Part(0, "a")
		e.Send(words("FLUSHALL"), nil)
		e.Part(1, "b")
		e.Send(words("FLUSHALL"), nil)
		both := c.take()
		c.answer(both[0], "-READONLY You can't write against a read only replica.\r\n")
		c.answer(both[1], "+OK\r\n") // has no order with the other part
		c.refreshed(clustertest.Split(t, 0))
		want := topology.Node("a")
		if follows {
			want = "b"
		}
		again := c.take()
		if len(again) != 1 || again[0].at != want {
			t.Fatalf("sent: %v, want it at %s", again, want)
		}
		c.answer(again[0], "+OK\r\n")
		if got := c.got.String(); got != "+OK\r\n+OK\r\n" {
			t.Errorf("the client got %q", got)
		}
	}
}

func TestARefusalOfAnotherSlotIsTheCommandsOwnReply(t *testing.T) {
	c := newClient(t)
	c.ask(words("GET " + c.low()))
	words := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(c.high())))
	c.answer(c.take()[0], words)
	if got := c.got.String(); got != words {
		t.Errorf("the client got %q", got)
	}
}

func TestAScriptThatMakesUpARefusalRunsOnce(t *testing.T) {
	c := newClient(t)
	key := c.low()
	madeUp := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(key)))
	c.ask(words("EVAL text 1 " + key))
	c.answer(c.take()[0], madeUp)
	probe := c.take()
	if len(probe) != 1 || probe[0].raw != string(words("EXISTS "+key)) || probe[0].at != "a" {
		t.Fatalf("sent: %v", probe)
	}
	c.answer(probe[0], ":0\r\n")
	c.refreshed(c.view)
	if again := c.take(); len(again) > 0 {
		t.Errorf("the script is sent again: %v", again)
	}
	if got := c.got.String(); got != madeUp {
		t.Errorf("the client got %q", got)
	}
}

func TestAKeylessCommandAvoidsASilentServer(t *testing.T) {
	c := newClient(t)
	c.silent = "a"
	for range 20 {
		if at := c.errands.Chance(); at != "b" {
			t.Fatalf("sent to %s", at)
		}
	}
}

func TestPausesGrow(t *testing.T) {
	var a Attempts
	var last time.Duration
	for range 20 {
		if !a.Refused(time.Minute) {
			t.Fatal("given up")
		}
		if p := a.Pause(); p < last || p > 100*time.Millisecond {
			t.Errorf("a pause of %v after one of %v", p, last)
		} else {
			last = p
		}
	}
	if last != 100*time.Millisecond || a.Refused(-1) {
		t.Error("the longest pause is 100 ms, and attempts end")
	}
}

var (
	_ Session = (*client)(nil)
	_ Cluster = (*client)(nil)
)

// A client chooses the number of its refused commands. Their cost must not grow with the square of it.
func BenchmarkRefusedPipeline(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				c := newClient(b)
				c.quiet = true
				moved, other := words("GET "+c.low()), words("GET "+c.high())
				refusal := fmt.Sprintf("-MOVED %d h:2\r\n", hashslot.Of([]byte(c.low())))
				for range n / 2 {
					c.ask(moved)
					c.ask(other)
				}
				for i, one := range c.take() {
					if i%2 == 0 {
						c.answer(one, refusal)
					} else {
						c.answer(one, "+OK\r\n")
					}
				}
				c.refreshed(clustertest.Split(b, 0))
				for len(c.sent) > 0 {
					c.answer(c.take()[0], "+OK\r\n")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/command")
		})
	}
}
