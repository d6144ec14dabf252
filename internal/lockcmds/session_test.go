package lockcmds

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// someLease is one that a test can wait for, and that does not end though the machine stands still for seconds: a
// renewal is due after a third.
const someLease = 6 * time.Second

// proxy is an engine as one process would run it.
type proxy struct {
	t    testing.TB
	srv  *redistest.Server
	e    *Engine
	addr string // of Redis
	next atomic.Uint64
	jobs.System
	// counts of Events
	attempts, handovers, losses atomic.Int64
}

// startProxy runs an engine on the server until the test ends.
func startProxy(t testing.TB, srv *redistest.Server, change func(*Options)) *proxy {
	t.Helper()
	p := &proxy{t: t, srv: srv}
	opts := Options{
		UUID:     fmt.Sprintf("00000000-0000-4000-8000-%012d", proxies.Add(1)),
		Defaults: Defaults{Lease: someLease},
		Clock:    p,
		Events: Events{
			Attempt:    func() { p.attempts.Add(1) },
			HandedOver: func(time.Duration) { p.handovers.Add(1) },
			Lost:       func(string) { p.losses.Add(1) },
		},
	}
	if srv != nil {
		p.addr = srv.Addr()
		opts.Redis = redislink.New(redislink.Options{Addr: srv.Addr()})
	}
	if testing.Verbose() {
		opts.Logger = zaptest.NewLogger(t)
	}
	if change != nil {
		change(&opts)
	}
	var err error
	if opts.Jobs == nil {
		pool, err := jobs.New()
		if err != nil {
			t.Fatal(err)
		}
		opts.Jobs = pool
	}
	if p.e, err = New(opts); err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		if err := p.e.Run(context.Background()); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.e.Close(ctx); err != nil {
			t.Error(err)
		}
		await(t, ran, "the end of Run")
		if err := opts.Jobs.(*jobs.Pool).Close(patience); err != nil {
			t.Error(err)
		}
	})
	return p
}

var proxies atomic.Int64

// await returns when the channel is closed, or something comes. The test fails if neither happens.
func await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
}

// twoProxies runs two engines on one server.
func twoProxies(t testing.TB, change func(*Options)) (p, q *proxy) {
	t.Helper()
	srv := redistest.Start(t)
	return startProxy(t, srv, change), startProxy(t, srv, change)
}

// leaseOfAMinute has no lease end in a test, nor be renewed.
func leaseOfAMinute(o *Options) { o.Lease = time.Minute }

// onlyWhenTold has waiters ask when they are told: no lease ends in a test, and no place counts as dead.
func onlyWhenTold(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }

// lane is a new connection to the engine's Redis.
func (p *proxy) lane() *locktest.Lane {
	p.t.Helper()
	return locktest.NewLane(p.t, p.addr)
}

// session is the test double of a session, with what tests ask of it.
type session struct {
	*locktest.Session
	t testing.TB
	p *proxy
}

func (p *proxy) session(proto int) *session {
	p.t.Helper()
	s := &session{Session: locktest.New(p.t, p.e, p.next.Add(1), proto, p.lane()), t: p.t, p: p}
	p.t.Cleanup(s.HangUp)
	return s
}

func (s *session) send(line string) {
	s.t.Helper()
	s.Send(line)
}

// reply is the next reply.
func (s *session) reply() string {
	s.t.Helper()
	return s.Next(patience)
}

func (s *session) push() string {
	s.t.Helper()
	return s.NextPush(patience)
}

// quiet fails if there is a reply within d.
func (s *session) quiet(d time.Duration) {
	s.t.Helper()
	s.Quiet(d)
}

func (s *session) hangUp() { s.HangUp() }

// do sends a command and returns its reply.
func (s *session) do(line string) string {
	s.t.Helper()
	s.send(line)
	return s.reply()
}

// want sends a command and checks its reply.
func (s *session) want(line, reply string) {
	s.t.Helper()
	if got := s.do(line); got != reply {
		s.t.Fatalf("%s: %s, want %s", line, got, reply)
	}
}

// waits sends an acquire, and returns when it has become a waiter.
func (s *session) waits(line string) {
	s.t.Helper()
	s.send(line)
	s.awaitWaiting()
}

// awaitWaiting returns when the session's acquire has become a waiter: it is in progress, and its first attempt has
// been answered.
func (s *session) awaitWaiting() {
	s.t.Helper()
	redistest.Eventually(s.t, patience, "the acquire to wait", func() bool {
		s.Lock()
		defer s.Unlock()
		return s.Pending() == 0 && s.p.e.asks(s.ID)
	})
}

// executed waits until Redis has answered n scripts of the session, whether or not the session has been told.
func (s *session) executed(n int64) {
	s.t.Helper()
	redistest.Eventually(s.t, patience, "redis to answer", func() bool { return s.Lane.Answered.Load() == n })
}

// withheld sends a command, and returns when Redis has executed it. The session is told when answer is called.
func (s *session) withheld(line string) (answer func()) {
	s.t.Helper()
	answer = s.Lane.HoldBack()
	next := s.Lane.Answered.Load() + 1
	s.send(line)
	s.executed(next)
	return answer
}

// fence sends an acquire and returns its fence.
func (s *session) fence(line string) int64 {
	s.t.Helper()
	return fenceIn(s.t, s.do(line))
}

func fenceIn(t testing.TB, reply string) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscanf(reply, ":%d", &n); err != nil || n < 1 {
		t.Fatalf("reply %s is no fence", reply)
	}
	return n
}

// waitQueue calls f with the wait queue of a lock, and returns its result; false: no client waits.
func (p *proxy) waitQueue(key string, f func(q *table.Queue) bool) (ok bool) {
	p.e.step(func(s *table.Table) {
		if q := s.Queue(key); q != nil {
			ok = f(q)
		}
	})
	return ok
}

// awaitPlaces returns when there are n places in the queue of the lock k in Redis.
func awaitPlaces(t *testing.T, srv *redistest.Server, n int) {
	t.Helper()
	redistest.Eventually(t, patience, fmt.Sprint("places in the queue: ", n), func() bool {
		return srv.Client(t).LLen(t.Context(), script.Queue("k")).Val() == int64(n)
	})
}

// awaitAttempt waits for the end of the first attempt of a waiter: the deciding one, behind the confirmation of the
// subscription.
func (p *proxy) awaitAttempt(key string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "the deciding attempt", func() bool { return p.settled(key) && p.attempts.Load() == 1 })
}

// settled reports whether no attempt for the lock is on its way.
func (p *proxy) settled(key string) bool {
	return p.waitQueue(key, (*table.Queue).Settled)
}

// awaitAttempts returns when all who wait for the lock have made their deciding attempts.
func (p *proxy) awaitAttempts(key string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "the deciding attempts", func() bool { return p.settled(key) })
}

// publish has the engine's own client connect.
func (e *Engine) publish(channel, message string) error {
	call := script.Tell{Key: channel, Messages: []script.Message{{Channel: channel, Text: message}}}.Call()
	_, err := runFor(e.life, e.client, call, script.DecodeDone)
	return err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
