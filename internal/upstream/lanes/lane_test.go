package lanes

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A client is a receiver.
type client struct {
	keeps bool // its requests that have not been sent wait for the next connection

	mu   sync.Mutex
	got  bytes.Buffer
	lost string
}

func (c *client) Replies(_ uint64, b []byte, _ int, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got.Write(b)
}

func (c *client) Lost(_ uint64, n int, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.lost += map[bool]string{false: "unsent ", true: "sent "}[sent]
	}
}
func (c *client) Flush()          {}
func (c *client) Keeps(bool) bool { return c.keeps }

// outcome is the replies so far, and the commands without one.
func (c *client) outcome() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String() + c.lost
}

// send has the lane send a command. "" is the outcome as long as there is none.
func send(l *Lane, args ...string) (outcome func() string) {
	c := &client{}
	if err := l.Append(resp.AppendCommand(nil, args...), c, 0, 1); err != nil {
		return err.Error
	}
	return c.outcome
}

func await(t *testing.T, what string, outcome func() string, want string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: it is %q, want %q", what, outcome(), want)
		}
	}()
	redistest.Eventually(t, 10*time.Second, what, func() bool { return outcome() == want })
}

// awaitWritten waits until the socket has taken the lane's requests. Their outcome is in doubt from then on.
func awaitWritten(t *testing.T, l *Lane) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, "the requests are written", func() bool { appended, written := l.Progress(); return appended == written })
}

func TestALaneReconnectsAndTellsItsOwner(t *testing.T) {
	srv := redistest.Start(t)
	s := &redis{addr: srv.Addr()}
	w := start(t, 4, s)
	l := w.lane(in(0), "")
	await(t, "the first answer", send(l, "SET", "k", "v"), "+OK\r\n")
	srv.Pause()
	inFlight := send(l, "INCR", "n")
	awaitWritten(t, l) // else it may be unsent
	s.turn("")         // for a moment the port of a process that is being killed may still take connections
	srv.Kill()
	await(t, "the loss", inFlight, "sent ")
	await(t, "a refusal", w.events, "connected, lost, failed")
	if got := l.Refusal(); got != nil {
		t.Errorf("Redis has refused with %q", got)
	}
	if l.Hopeless() {
		t.Error("a successor of the server would be of use")
	}
	srv.Restart()
	s.turn(srv.Addr())
	await(t, "a new connection", w.events, "connected, lost, failed, connected again")
	await(t, "an answer", send(l, "EXISTS", "n"), ":0\r\n") // the lost command was not sent again
	if l.Refusal() != nil || !l.IsUp() {
		t.Error("the lane remembers that it was not connected")
	}
	if n := w.entries.FilterMessage("a connection to redis was lost").Len(); n != 1 {
		t.Errorf("%d entries about the loss", n)
	}
	if _, lost := w.Counts(); lost != 1 {
		t.Errorf("%d connections count as lost", lost)
	}
	l.Close()
	redistest.Eventually(t, 10*time.Second, "the end", func() bool { return ended(l) })
	if w.events() != "connected, lost, failed, connected again" {
		t.Errorf("%s: Close is no loss", w.events())
	}
}

// The proxy's own credentials are tried again when they are refused: an operator corrects them.
func TestOwnWrongCredentialsAreTriedAgain(t *testing.T) {
	srv := redistest.Start(t)
	id := dial.Identity{User: "u", Password: "p", Proto: 2}
	w := start(t, 4, &redis{addr: srv.Addr()})
	w.own = id
	l := w.lane(id, "x")
	await(t, "a failure", w.events, "failed")
	if l.Rejected() {
		t.Error("the proxy's own credentials are not to be given up")
	}
	srv.Do(t, "ACL", "SETUSER", "u", "on", ">p", "allcommands", "allkeys")
	await(t, "a connection", w.events, "failed, connected")
}

// Attempts have growing pauses. A command that waits brings the next one forward, and has the outcome of that.
func TestPausesBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &redis{}
		w := start(t, 4, s)
		l := w.lane(in(0), "")
		w.Leave(l)
		synctest.Wait()
		w.entries.TakeAll() // the first attempt may have failed before
		time.Sleep(time.Minute)
		synctest.Wait()
		rested := s.attempts()
		if rested < 3 || rested > 200 {
			t.Errorf("%d attempts in a minute without commands", rested)
		}
		if n := w.entries.FilterMessage("lane not connected").Len(); n != 0 {
			t.Errorf("%d entries about a lane that nobody uses", n)
		}
		outcome, begin := send(l, "PING"), time.Now()
		for outcome() == "" && time.Since(begin) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if outcome() != "unsent " || time.Since(begin) > 200*time.Millisecond {
			t.Errorf("the command: %q after %v", outcome(), time.Since(begin))
		}
	})
}

func TestALaneWhoseServerMovesTakesNoMoreRequests(t *testing.T) {
	srv, next := redistest.Start(t), redistest.Start(t)
	s := &redis{addr: srv.Addr()}
	w := start(t, 4, s)
	l := w.lane(in(0), "")
	await(t, "an answer", send(l, "PING"), "+PONG\r\n")
	srv.Pause()
	before := send(l, "INCR", "n")
	awaitWritten(t, l)
	if l.Leave() {
		t.Fatal("a request is on its way")
	}
	after := &client{keeps: true}
	if err := l.Append(resp.AppendCommand(nil, "INCR", "n"), after, 0, 1); err != nil {
		t.Fatal(err)
	}
	srv.Continue()
	await(t, "the answer of before", before, ":1\r\n")
	if got := after.outcome(); got != "" || !l.Leave() || l.Take(nil) != nil {
		t.Errorf("a request after Leave: %q; settled: %v", got, l.Leave())
	}
	s.turn(next.Addr())
	w.opts.Dialer.Moved(topology.Any)
	await(t, "the answer on the next connection", after.outcome, ":1\r\n")
}

// A server that ends each connection is asked less and less often.
func TestALaneThatIsLostAgainAndAgainWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	start(t, 4, &redis{addr: l.Addr().String()}).lane(in(0), "")
	for range 15 {
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = nc.Read(make([]byte, 1024))
		_, _ = nc.Write([]byte("*0\r\n")) // the answer to HELLO
		nc.Close()
	}
	// 14 pauses: 5, 10, 20 and 40 ms, and then 50 ms.
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("15 connections within %v", took)
	}
}
