package session

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// hand is a host and a driver moved by hand: there are no sockets between a session and its lane, and none to its
// client.
type hand struct {
	socket  string // of the greeter
	wire    *upstream.Stream
	driving chan struct{} // closed when the wire is the test's
	once    sync.Once
	resumed int
	yields  int
	hungup  bool
	left    bool // the client has ended its side
	flushed func()
}

func (h *hand) Flush() {
	if h.flushed != nil {
		h.flushed()
	}
}

func (h *hand) Hangup()                 { h.hungup = true }
func (h *hand) Resume()                 { h.resumed++ }
func (h *hand) Yield()                  { h.yields++ }
func (h *hand) Driver() upstream.Driver { return h }

func (*hand) Unread() bool { return false }
func (h *hand) Left() bool { return h.left }

// Attach implements upstream.Driver. The test moves the first lane; a spare one stays idle.
func (h *hand) Attach(w *upstream.Stream) upstream.Mover {
	if h.wire == nil {
		h.wire = w
	}
	return h
}
func (h *hand) Wake() {}

func (h *hand) Drive(nc net.Conn, stop <-chan struct{}) error {
	h.once.Do(func() { close(h.driving) })
	<-stop
	return nc.Close()
}

// byHand returns a session whose client and lane are the test.
func byHand(t *testing.T, limits Limits) (*Session, *hand) {
	t.Helper()
	socket := greeter(t, "-ERR refused\r\n")
	e := testEnv(t, "unix:"+socket, limits)
	h := &hand{driving: make(chan struct{}), socket: socket}
	s := New(clients.Origin{ID: 1, Addr: "test"}, e, h)
	s.lane = e.Upstream.Lanes.Lane(s.ident, topology.Any, h, "", upstream.Reads)
	<-h.driving
	h.wire.Open()
	t.Cleanup(func() { over(s) })
	return s, h
}

// over ends a session, and closes the lanes of its proxy.
func over(s *Session) {
	s.Hungup()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.proxy.Upstream.Run(ctx)
}

// testEnv is what sessions share in front of a Redis at that address.
func testEnv(tb testing.TB, addr string, limits Limits) *Proxy {
	tb.Helper()
	return envWith(tb, upstream.Options{Addr: addr, Pins: upstream.PinLimits{Max: 1000}}, limits)
}

// envWith is testEnv with options.
func envWith(tb testing.TB, opts upstream.Options, limits Limits) *Proxy {
	tb.Helper()
	for _, limit := range []*int{&limits.Query, &limits.Unanswered, &limits.Output} {
		*limit = cmp.Or(*limit, 1<<30)
	}
	limits.LargeCommand = cmp.Or(limits.LargeCommand, 10*time.Second)
	opts.FailoverWait = time.Minute // a busy machine is no failure
	opts.DialTimeout, opts.MaxLanes, opts.Logger = 10*time.Second, 256, zap.NewNop()
	opts.Pins.Wait, opts.Pins.MaxLogins, opts.Pins.LoginWait = time.Second, 16, 10*time.Second
	up, err := upstream.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	if strings.HasPrefix(opts.Addr, "unix:") {
		_ = up.LookAtAuth(tb.Context()) // it serves clients without a login, if it is there
	}
	return &Proxy{Settings: Settings{Limits: limits, ClientAuth: AuthUpstream, Logger: zap.NewNop()}, Source: metrics.Source{Upstream: up, Budget: budget.New(1<<30, nil)}}
}

// greeter accepts connections and answers their handshakes. The rest of what it reads it answers with other.
func greeter(t testing.TB, other string) string {
	t.Helper()
	addr := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				answer, buf := "+PONG\r\n", make([]byte, 1024)
				for {
					if _, err := nc.Read(buf); err != nil {
						return
					}
					if _, err := nc.Write([]byte(answer)); err != nil {
						return
					}
					answer = other
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return addr
}

// feed reports whether the engine may read more from the client.
func feed(t *testing.T, s *Session, lines ...string) (more bool) {
	t.Helper()
	alive, more := s.Feed([]byte(typed(lines...)))
	if !alive {
		t.Fatalf("the session ended at %q", lines)
	}
	return more
}

func (h *hand) replies(t *testing.T, b string) {
	t.Helper()
	h.wire.Take(nil)
	if err := h.wire.Feed([]byte(b)); err != nil {
		t.Fatal(err)
	}
}

// wantOutput takes what the client would get.
func wantOutput(t *testing.T, s *Session, want string, wantLast bool) {
	t.Helper()
	b, last := s.NextWrite(nil)
	if string(b) != want || last != wantLast {
		t.Errorf("output %q, last %v, want %q, %v", b, last, want, wantLast)
	}
	if b != nil {
		s.EndWrite(b)
	}
}

func TestSessionKeepsTheContractWithTheLockCommands(t *testing.T) {
	s, _ := byHand(t, Limits{})
	locktest.CheckSession(t, s, func() { s.Hungup() })
}

// asker replies with what it is.
type asker string

func (a asker) Done(resp.Value, error) []byte { return []byte(a) }

// silent has no reply yet.
type silent struct{}

func (silent) Done(resp.Value, error) []byte { return nil }

// A lock command that its script does not answer is in the hands of a worker, which is to run soon. Other commands
// change nothing.
func TestOnlyALockCommandThatGoesOnYields(t *testing.T) {
	for _, c := range []struct {
		by   contract.Asker
		want int
	}{{asker(":1\r\n"), 0}, {silent{}, 1}} {
		s, h := byHand(t, Limits{})
		feed(t, s, "GET a")
		s.Do(func() {
			s.wait = waitLock
			s.Script(contract.Call{Call: script.Call{Script: &script.Script{}}, For: c.by})
		})
		h.replies(t, "$-1\r\n")
		if h.yields != 0 {
			t.Errorf("%T: an ordinary command yields", c.by)
		}
		if h.replies(t, ":0\r\n"); h.yields != c.want {
			t.Errorf("%T: it yields %d times, want %d", c.by, h.yields, c.want)
		}
	}
}

// The commands behind a lock command wait for its answer, also while its script is sent once more.
func TestCommandsWaitBehindALockCommand(t *testing.T) {
	s, h := byHand(t, Limits{})
	s.conn(ordinaryRow).Scripts().Add(0) // the connection has run the script before
	script.Ask{}.Call().Text()           // composes all scripts, which takes so long that the lane would be set aside
	feed(t, s, "GET a")
	s.Do(func() {
		s.wait = waitEngine
		s.Script(contract.Call{Call: script.Call{Script: &script.Script{}}, For: asker(":1\r\n")})
	})
	feed(t, s, "GET b")
	wantDue := func(n int) {
		t.Helper()
		if due := s.out.Slots.Due(); due != n {
			t.Fatalf("%d replies are due, want %d", due, n)
		}
	}
	wantDue(2) // GET b has not been sent
	h.replies(t, "$1\r\na\r\n-NOSCRIPT x\r\n")
	wantDue(1)
	wantOutput(t, s, "$1\r\na\r\n", false)
	h.replies(t, ":7\r\n")
	wantDue(1)
	wantOutput(t, s, ":1\r\n", false)
	h.replies(t, "$1\r\nb\r\n")
	wantOutput(t, s, "$1\r\nb\r\n", false)
}

func TestPushIsNotPutIntoAReply(t *testing.T) {
	s, h := byHand(t, Limits{})
	s.ident.Proto = 3
	push := func(b string) { s.Do(func() { s.Push([]byte(b)) }) }
	push(">0\r\n")
	feed(t, s, "GET a", "GET b")
	h.replies(t, "$4\r\nab")
	push(">1\r\n+x\r\n")
	wantOutput(t, s, ">0\r\n$4\r\nab", false)
	h.replies(t, "cd\r\n_\r")
	push(">1\r\n+y\r\n")
	wantOutput(t, s, "cd\r\n_\r", false)
	h.replies(t, "\n")
	wantOutput(t, s, "\n>1\r\n+x\r\n>1\r\n+y\r\n", false)
}

func TestReadingPausesWhileTooMuchIsUnanswered(t *testing.T) {
	s, h := byHand(t, Limits{Unanswered: 100})
	if !feed(t, s, "GET a") {
		t.Error("paused for one small command")
	}
	if feed(t, s, "SET a "+strings.Repeat("x", 100)) {
		t.Error("not paused")
	}
	h.replies(t, "$-1\r\n")
	if h.resumed != 0 {
		t.Error("resumed while commands are outstanding")
	}
	h.replies(t, "+OK\r\n")
	if more := feed(t, s, "GET a"); h.resumed != 1 || !more {
		t.Errorf("resumed %d times, or paused for what has been answered", h.resumed)
	}
}

// An entry with ordinary commands or their replies does not add up the memory that it cannot have changed.
func TestTheChargeIsThatOfAllMemoryAfterOrdinaryCommands(t *testing.T) {
	s, h := byHand(t, Limits{})
	long := strings.Repeat("n", budget.Free+budget.Free/2)
	get := func() {
		feed(t, s, "GET a")
		h.replies(t, "$1\r\nx\r\n")
		wantOutput(t, s, "$1\r\nx\r\n", false)
	}
	for _, step := range []struct {
		what    string
		do      func()
		charged bool
	}{
		{"an ordinary command", get, false},
		{"a long name", func() { s.Do(func() { s.name = long }) }, true},
		{"an ordinary command", get, true},
		{"a short name", func() { s.Do(func() { s.name = "n" }) }, false},
		{"an ordinary command", get, false},
		{"a lock", func() { s.Do(func() { s.lockMemory.Add(3 * budget.Free) }) }, true},
		{"an ordinary command", get, true},
		{"its loss behind the session's back", func() { s.lockMemory.Add(-3 * budget.Free); get() }, false},
	} {
		step.do()
		if charged := s.bill.Bytes() > 0; charged != step.charged || charged != (s.Measure() > budget.Free) {
			t.Errorf("after %s: charged %d, has %d", step.what, s.bill.Bytes(), s.Measure())
		}
	}
}

func TestPanicEndsOnlyItsSession(t *testing.T) {
	s, h := byHand(t, Limits{})
	other := New(clients.Origin{ID: 2, Addr: "other"}, s.proxy, h)
	other.lane = s.proxy.Upstream.Lanes.Lane(s.ident, topology.Any, h, "", upstream.Reads)
	defer other.Hungup()
	s.mu.Lock()
	s.forward(ordinaryRow, []byte("*1\r\n$4\r\nPING\r\n"), &reply.Reply{Session: s, Done: func([]byte) { panic("test") }}, 1)
	s.mu.Unlock()
	feed(t, other, "GET a")
	h.replies(t, "+PONG\r\n$1\r\na\r\n")
	if alive, _ := s.Feed([]byte("PING\r\n")); !h.hungup || alive {
		t.Error("the session goes on after a panic")
	}
	if n := s.proxy.Counters.Closed[metrics.Panic].Load(); n != 1 {
		t.Errorf("%d panics counted", n)
	}
	wantOutput(t, other, "$1\r\na\r\n", false)
}

func TestOutputBeyondItsLimitEndsTheSession(t *testing.T) {
	s, h := byHand(t, Limits{Output: 100})
	feed(t, s, "GET a", "GET b")
	h.replies(t, "$90\r\n"+strings.Repeat("a", 90)+"\r\n")
	if h.hungup {
		t.Fatal("ended below the limit")
	}
	h.replies(t, "$1\r\nb\r\n")
	if !h.hungup || s.proxy.Counters.Closed[metrics.OutputLimit].Load() != 1 {
		t.Error("not ended beyond the limit")
	}
}

// Replies that come after a session has been cut off go nowhere.
func TestNothingFollowsACutOff(t *testing.T) {
	s, _ := byHand(t, Limits{})
	feed(t, s, "GET a", "GET b")
	s.Replies(1, []byte("$1\r\na\r\n"), 1, false)
	s.Lost(1, 1, true)
	s.Replies(1, []byte("$1\r\nb\r\n"), 1, false)
	if alive, _ := s.Feed([]byte("GET c\r\n")); !alive {
		t.Error("the connection ends before its last output")
	}
	wantOutput(t, s, "$1\r\na\r\n", true)
}

func TestLockAnswerMadeAtOnceComesAfterEarlierReplies(t *testing.T) {
	s, h := byHand(t, Limits{})
	feed(t, s, "GET a")
	s.Do(func() {
		s.wait = waitLock
		s.Reply([]byte(":5\r\n"))
	})
	feed(t, s, "GET b")
	wantOutput(t, s, "", false)
	if n := s.out.Slots.Due(); n != 2 {
		t.Errorf("%d replies are due, want 2: a command behind the answer need not wait", n)
	}
	h.replies(t, "$1\r\na\r\n")
	wantOutput(t, s, "$1\r\na\r\n:5\r\n", false)
	h.replies(t, "$1\r\nb\r\n")
	wantOutput(t, s, "$1\r\nb\r\n", false)
}

func TestLongLineIsNotKept(t *testing.T) {
	s, _ := byHand(t, Limits{})
	feed(t, s, strings.Repeat(`"" `, 20_000))
	if kept := s.guard.Kept(); kept > 16<<10 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// The dial may have failed before the command is put on its connection.
func TestCommandsForAPinThatNeverWasEndTheClient(t *testing.T) {
	for _, cmds := range [][]string{{"SUBSCRIBE a"}, {"MONITOR"}, {"BLPOP l 0"}, {"MULTI", "SET k v", "EXEC"}} {
		s, h := byHand(t, Limits{})
		takeDeadPin(t, s, h)
		s.mu.Lock()
		s.consume([]byte(typed(append(cmds, "GET k")...)))
		life := s.life
		s.unlock()
		if life != doomed {
			t.Errorf("%s: the life of the session: %d", cmds[0], life)
		}
		wantOutput(t, s, "", false)
	}
}

// Redis has accepted an identity, and the session cannot learn which one: it must not go on as it was.
func TestSessionEndsWithoutAnAnswerToItsOwnQuestion(t *testing.T) {
	s, h := byHand(t, Limits{})
	takeDeadPin(t, s, h)
	s.mu.Lock()
	s.pin.fresh = false
	s.pin.outcome = &outcome{target: upstream.Identity{User: "u", Password: "p", DB: 1}, authenticated: true} // may it SELECT?
	s.settleIdentity()
	gone := s.out.Gone()
	s.unlock()
	if !gone {
		t.Error("the session goes on")
	}
}

// A drain may look at a client between its arrival and its first command.
func TestAClientThatHasJustComeIsNotSilent(t *testing.T) {
	s, _ := byHand(t, Limits{})
	e := s.proxy
	e.Clock.Store(time.Hour.Milliseconds())
	s = New(clients.Origin{ID: 2, Addr: "test"}, e, &hand{})
	if s.Drain(time.Second, false) {
		t.Error("it is closed before its first command")
	}
	e.Clock.Add(time.Second.Milliseconds())
	if !s.Drain(time.Second, false) {
		t.Error("it is not closed though it has been silent")
	}
}

// takeDeadPin gives a session, which is not new, a pin that cannot be connected.
func takeDeadPin(t *testing.T, s *Session, h *hand) {
	t.Helper()
	if err := os.Remove(h.socket); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reach = met
	if _, ok := s.takePin(&request{}, "test", command.PinRaw, false); !ok {
		t.Fatal("there is no pin")
	}
	s.pin.conn.Discard()
	dialFails(t, s.pin.conn)
}

// dialFails waits until a pin cannot be connected.
func dialFails(t *testing.T, pin *upstream.Pin) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "the dial to fail", func() bool { return pin.Append(nil, nil, 0, 0) != nil })
}

// typed joins lines as a telnet user would type them.
func typed(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

// A client may have gone while its engine is busy. It gets no grant for which it has waited, so the grant can be rolled
// back.
func TestAGrantIsNotForAClientThatHasLeft(t *testing.T) {
	for _, left := range []bool{false, true} {
		s, h := byHand(t, Limits{})
		s.wait, h.left = waitLock, left
		granted := false
		alive := s.Do(func() {
			granted = true
			s.Reply([]byte(":1\r\n"))
		})
		if granted == left || alive == left || h.hungup != left {
			t.Errorf("left: %v; granted: %v, alive: %v, hung up: %v", left, granted, alive, h.hungup)
		}
	}
}
