package lanes

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A server is where Redis is, and the owner of a lane to it, which notes what it is told.
type server struct {
	mu      sync.Mutex
	addr    string // empty: it cannot be reached
	unused  bool
	asked   int // attempts to connect
	told    []string
	busy    int
	entries *observer.ObservedLogs
}

func (s *server) Resolve(topology.Node) (topology.Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.addr == "" {
		return topology.Place{}, errors.New("away")
	}
	return topology.Place{Network: "tcp", Address: s.addr}, nil
}

// turn has further attempts go to an address.
func (s *server) turn(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = addr
}

func (s *server) Doubt(topology.Node, topology.Place, error) {}

func (s *server) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil || s.told[len(s.told)-1] != what { // however many attempts fail
		s.told = append(s.told, what)
	}
}

func (s *server) InUse(*Lane) bool { return !s.unused }
func (s *server) Connected(_ *Lane, again bool) {
	s.note(map[bool]string{false: "connected", true: "connected again"}[again])
}
func (s *server) Failed(*Lane, error) { s.note("failed") }
func (s *server) Lost(*Lane)          { s.note("lost") }
func (s *server) Rejected(*Lane)      { s.note("rejected") }

func (s *server) events() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told, ", ")
}

func (s *server) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// run runs a lane to a server until the test ends. over is closed when Run has returned.
func run(t *testing.T, s *server, id dial.Identity, own bool) (l *Lane, over <-chan struct{}) {
	t.Helper()
	core, entries := observer.New(zap.DebugLevel)
	s.entries = entries
	stop, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	repeats := logging.NewRepeats(zap.New(core), 5, time.Hour)
	l = newLane(laneOptions{
		Target:  dial.Target{At: topology.Any, ID: id},
		Dialer:  dial.New(dial.Options{Resolver: s, Timeout: 10 * time.Second, KeepAlive: time.Minute, UserTimeout: -1, Spawn: wg.Go, Stop: stop}),
		Own:     own,
		Meek:    func() bool { return false },
		Logger:  zap.New(core),
		Entries: repeats,
		Owner:   s,
		Busy: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.busy++
		},
	})
	wg.Go(func() {
		defer close(done)
		l.Run()
	})
	t.Cleanup(func() {
		close(stop)
		l.Close()
		wg.Wait()
		repeats.Flush()
	})
	return l, done
}

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
func (c *client) Flush()      {}
func (c *client) Keeps() bool { return c.keeps }

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
	s := &server{addr: srv.Addr()}
	l, over := run(t, s, dial.Identity{Proto: 2}, false)
	await(t, "the first answer", send(l, "SET", "k", "v"), "+OK\r\n")
	s.mu.Lock()
	if s.busy != 1 {
		t.Errorf("Busy was called %d times", s.busy)
	}
	s.mu.Unlock()
	srv.Pause()
	inFlight := send(l, "INCR", "n")
	awaitWritten(t, l) // else it may be unsent
	s.turn("")         // for a moment the port of a process that is being killed may still take connections
	srv.Kill()
	await(t, "the loss", inFlight, "sent ")
	await(t, "a refusal", func() string { return s.events() }, "connected, lost, failed")
	if got := string(l.Refusal()); !strings.HasPrefix(got, "-NOUPSTREAM ") {
		t.Errorf("the refusal is %q", got)
	}
	if l.Hopeless() {
		t.Error("a successor of the server would be of use")
	}
	srv.Restart()
	s.turn(srv.Addr())
	await(t, "a new connection", s.events, "connected, lost, failed, connected again")
	await(t, "an answer", send(l, "EXISTS", "n"), ":0\r\n") // the lost command was not sent again
	if l.Refusal() != nil || !l.IsUp() {
		t.Error("the lane remembers that it was not connected")
	}
	if n := s.entries.FilterMessage("a connection to redis was lost").Len(); n != 1 {
		t.Errorf("%d entries about the loss", n)
	}
	l.Close()
	<-over
	if err := l.Append(nil, &client{}, 0, 0); !errors.Is(err, stream.ErrDown) {
		t.Errorf("a closed lane takes commands: %v", err)
	}
	if s.events() != "connected, lost, failed, connected again" {
		t.Errorf("%s: Close is no loss", s.events())
	}
}

// A client whose credentials are refused is told at once. The proxy's own are tried again: an operator corrects them.
func TestWrongCredentials(t *testing.T) {
	srv := redistest.Start(t)
	id := dial.Identity{User: "u", Password: "p", Proto: 2}
	client := &server{addr: srv.Addr()}
	l, over := run(t, client, id, false)
	<-over
	if got := client.events(); got != "rejected" || !l.Rejected() || !l.Hopeless() {
		t.Errorf("%s; rejected: %v", got, l.Rejected())
	}
	own := &server{addr: srv.Addr()}
	l, _ = run(t, own, id, true)
	await(t, "a failure", own.events, "failed")
	if l.Rejected() {
		t.Error("the proxy's own credentials are not to be given up")
	}
	srv.Do(t, "ACL", "SETUSER", "u", "on", ">p", "allcommands", "allkeys")
	await(t, "a connection", own.events, "failed, connected")
}

// Attempts have growing pauses. A command that waits brings the next one forward, and has the outcome of that.
func TestPausesBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{unused: true}
		l, _ := run(t, s, dial.Identity{Proto: 2}, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		rested := s.attempts()
		if rested < 3 || rested > 200 {
			t.Errorf("%d attempts in a minute without commands", rested)
		}
		if n := s.entries.FilterMessage("lane not connected").Len(); n != 0 {
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

func TestARefusingLane(t *testing.T) {
	target := dial.Target{At: "there", ID: dial.Identity{DB: 3, Proto: 2}}
	for _, full := range []bool{true, false} {
		l := refusingLane(target, full)
		if l.Full() != full || l.Hopeless() != full || l.At() != "there" || l.Identity() != target.ID {
			t.Errorf("full %v: %v at %s as %v", full, l.Full(), l.At(), l.Identity())
		}
		if err := l.Append(nil, &client{}, 0, 1); !errors.Is(err, stream.ErrDown) {
			t.Errorf("Append = %v", err)
		}
	}
}

func TestALaneThatLeavesTakesNoMoreRequests(t *testing.T) {
	srv := redistest.Start(t)
	s := &server{addr: srv.Addr()}
	l, _ := run(t, s, dial.Identity{Proto: 2}, false)
	await(t, "an answer", send(l, "PING"), "+PONG\r\n")
	srv.Pause()
	before := send(l, "INCR", "n")
	awaitWritten(t, l)
	leaver, ok := l.Leaver(func(net.Conn) bool { return true })
	if !ok || leaver.Leave() {
		t.Fatal("a request is on its way")
	}
	after := &client{keeps: true}
	if err := l.Append(resp.AppendCommand(nil, "INCR", "n"), after, 0, 1); err != nil {
		t.Fatal(err)
	}
	srv.Continue()
	await(t, "the answer of before", before, ":1\r\n")
	redistest.Eventually(t, 10*time.Second, "no request on its way", leaver.Leave)
	if got := after.outcome(); got != "" {
		t.Errorf("a request after Leave: %q", got)
	}
	leaver.Abort()
	await(t, "the answer on the next connection", after.outcome, ":2\r\n")
}
