package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// stopping is a server whose stop a test begins and waits for.
type stopping struct {
	*Server
	t    *testing.T
	stop context.CancelFunc
	done chan error
	logs *observer.ObservedLogs
}

func startStopping(t *testing.T, redis *redistest.Server, engine string, change ...func(*Options)) *stopping {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	opts := Options{
		Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redis.Addr()}, Engine: engine,
		DrainTimeout: time.Minute, Logger: zap.New(core),
	}
	for _, f := range change {
		f(&opts)
	}
	Finish(&opts)
	srv, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &stopping{Server: srv, t: t, done: make(chan error, 1), logs: logs}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		s.stop()
		srv.closeConns()
		s.ended()
	})
	waitFor(t, "Redis", func() bool {
		ready, _ := srv.Ready()
		return ready
	})
	return s
}

// drains begins the stop and returns when clients are being asked to leave.
func (s *stopping) drains() {
	s.stop()
	select {
	case <-s.Stopped():
	case <-time.After(patience):
		s.t.Fatal("the server accepts on")
	}
}

// ended waits for the end, and returns the last entry of the log.
func (s *stopping) ended() map[string]any {
	s.t.Helper()
	select {
	case err := <-s.done:
		s.done <- err
		if err != nil {
			s.t.Error(err)
		}
	case <-time.After(patience):
		s.t.Fatal("the drain does not end")
	}
	last := s.logs.FilterMessage("stopped").All()
	if len(last) != 1 {
		s.t.Fatalf("%d entries about the end", len(last))
	}
	return last[0].ContextMap()
}

// asked waits until the proxy has asked all clients to leave.
func (s *stopping) asked(talker *peer) {
	s.t.Helper()
	if b, err := talker.frame(); err != nil || !strings.HasPrefix(b, ">2\r\n$8\r\ndraining\r\n:") {
		s.t.Fatalf("%q, %v instead of the push", b, err)
	}
}

func (c *peer) ends() {
	c.t.Helper()
	if b, err := c.frame(); !errors.Is(err, io.EOF) || b != "" {
		c.t.Fatalf("%s: %q, %v instead of the end", c.label, b, err)
	}
}

// Clients without locks or state move elsewhere at once; the drain does not wait for its timeout.
func TestQuietClientsAreClosed(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		idle, once, silent := dialClient(t, address(s.Server)), dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		idle.quiet("GET", "k")
		once.quiet("LOCK", "freed")
		once.quiet("UNLOCK", "freed")
		s.drains()
		idle.ends()
		once.ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) || fields["locks_left"] != int64(0) {
			t.Errorf("%v", fields)
		}
		silent.ends()
	})
}

// Each command that a client has sent is answered, and the connection ends behind a reply.
func TestBusyClientsAreClosedBehindAReply(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		const depth = 50
		talker, pipeline := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		pipeline.quiet("PING")
		begun, over := make(chan struct{}), make(chan int)
		go func() {
			rounds := 0
			defer func() { over <- rounds }()
			for ; ; rounds++ {
				if _, err := io.WriteString(pipeline.nc, strings.Repeat("PING\r\n", depth)); err != nil {
					return
				}
				for i := range depth {
					if b, err := pipeline.frame(); err != nil {
						if i > 0 {
							t.Errorf("%d of %d replies: %q, %v", i, depth, b, err)
						}
						return
					}
				}
				if rounds == 3 {
					close(begun)
				}
			}
		}()
		<-begun
		begin := time.Now()
		talker.quiet("HELLO", "3")
		s.drains()
		s.asked(talker)
		talker.side = &side{t: t} // it may be late
		talker.send("PING")
		got, err := talker.frame()
		if late := time.Since(begin) > 200*time.Millisecond; err != nil && late { // a silent client goes
			<-over
			t.Skip("the machine is too slow for this")
		}
		if got != "+PONG\r\n" {
			t.Error(got, err)
		}
		talker.ends()
		<-over
		s.ended()
	})
}

// A holder goes on, even with further locks, until it has released the last one.
func TestHoldersStayUntilTheirLastRelease(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		holder, talker := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		talker.quiet("HELLO", "3")
		holder.quiet("LOCK", "a")
		holder.quiet("LOCK", "b")
		s.drains()
		s.asked(talker)
		if got := holder.quiet("SET", "k", "v"); got != "+OK\r\n" {
			t.Error(got)
		}
		if got := holder.quiet("UNLOCK", "a"); got != ":1\r\n" {
			t.Error(got)
		}
		if got := holder.quiet("UNLOCK", "b"); got != ":1\r\n" {
			t.Error(got)
		}
		holder.ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) {
			t.Errorf("%v", fields)
		}
	})
}

func TestWaitersAreToldAndClosed(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		holder, waiter, fair := dialClient(t, address(s.Server)), dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		holder.quiet("LOCK", "k")
		waiter.send("LOCK", "k")
		fair.send("FAIRLOCK", "k", "WAIT", "60000")
		waitFor(t, "the waiters", func() bool { return s.Stats().Waiting == 2 })
		s.drains()
		for _, c := range []*peer{waiter, fair} {
			if b, err := c.frame(); err != nil || b != "-OVERLOADED the proxy is shutting down, connect again\r\n" {
				t.Errorf("%q, %v", b, err)
			}
			c.ends()
		}
		if got := holder.quiet("UNLOCK", "k"); got != ":1\r\n" {
			t.Error(got)
		}
		s.ended()
	})
}

// A transaction, a subscription and a blocked command are not cut off before the time is over.
func TestStateOnAConnectionIsKept(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		tx, sub, pop, other := dialClient(t, address(s.Server)), dialClient(t, address(s.Server)), dialClient(t, address(s.Server)), dialClient(t, redis.Addr())
		tx.quiet("MULTI")
		tx.quiet("SET", "k", "v")
		sub.quiet("HELLO", "3")
		sub.quiet("SUBSCRIBE", "news")
		pop.send("BLPOP", "list", "0")
		waitFor(t, "the blocked client", func() bool { return strings.Contains(other.quiet("INFO", "clients"), "blocked_clients:1\r\n") })
		s.drains()
		s.asked(sub)
		if got := tx.quiet("EXEC"); got != "*1\r\n+OK\r\n" {
			t.Error(got)
		}
		tx.ends()
		other.quiet("RPUSH", "list", "x")
		if b, err := pop.frame(); err != nil || b != "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n" {
			t.Errorf("%q, %v", b, err)
		}
		pop.ends()
		other.quiet("PUBLISH", "news", "late")
		if b, err := sub.frame(); err != nil || !strings.Contains(b, "late") {
			t.Errorf("%q, %v", b, err)
		}
		if got := sub.quiet("UNSUBSCRIBE", "news"); !strings.Contains(got, "unsubscribe") {
			t.Error(got)
		}
		sub.ends()
		s.ended()
	})
}

// Before the listeners close, clients come and work as before, and the proxy says that it is not ready.
func TestClientsAreAcceptedDuringTheDelay(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Second // a busy machine may need some of it for a client
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine, func(o *Options) { o.DrainDelay = delay })
		begun := time.Now()
		s.stop()
		waitFor(t, "the drain", s.Draining)
		c := dialClient(t, address(s.Server))
		if got := c.quiet("PING"); got != "+PONG\r\n" {
			t.Error(got)
		}
		if time.Since(begun) > delay {
			t.Skip("the machine is too slow for this")
		}
		select {
		case <-s.Stopped():
			t.Error("it accepts no more")
		default:
		}
		c.ends()
		if took := time.Since(begun); took < delay {
			t.Errorf("closed after %s", took)
		}
		if _, err := net.Dial("tcp", address(s.Server)); err == nil {
			t.Error("a client was accepted after the delay")
		}
		s.ended()
	})
}

// A connection that was accepted is served, even if its first command comes late.
func TestFirstCommandDuringTheDrainIsServed(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		holder, late := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		holder.quiet("HELLO", "3")
		holder.quiet("LOCK", "k")
		waitFor(t, "the second client", func() bool { return s.Stats().Clients == 2 })
		s.drains()
		s.asked(holder)
		if got := late.quiet("PING"); got != "+PONG\r\n" {
			t.Error(got)
		}
		late.ends()
		holder.quiet("UNLOCK", "k")
		holder.ends()
		s.ended()
	})
}

// A client that sends nothing does not stay as long as another one has a lock.
func TestAClientWithoutACommandLeavesTheDrain(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		holder, mute := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		holder.quiet("LOCK", "k")
		waitFor(t, "the second client", func() bool { return s.Stats().Clients == 2 })
		s.drains()
		mute.ends()
		holder.quiet("UNLOCK", "k")
		holder.ends()
		s.ended()
	})
}

// At the end the log has the number of the clients that were cut off, and the keys of some of the locks that were left.
func TestTheLastEntryNamesWhatWasLeft(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine, func(o *Options) { o.DrainTimeout = 100 * time.Millisecond })
		a, b, idle := dialClient(t, address(s.Server)), dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		for i := range locksNamed + 5 {
			a.quiet("LOCK", "{"+engine+"}"+strconv.Itoa(1000+i), "PX", "60000")
		}
		b.quiet("LOCK", "{"+engine+"}z", "PX", "60000")
		idle.quiet("PING")
		s.drains()
		a.ends()
		b.ends()
		idle.ends()
		fields := s.ended()
		locks, _ := fields["locks"].([]any)
		if fields["clients_cut"] != int64(2) || fields["locks_left"] != int64(locksNamed+6) || len(locks) != locksNamed || locks[0] != "{"+engine+"}1000" {
			t.Errorf("cut %v, left %v, %d names", fields["clients_cut"], fields["locks_left"], len(locks))
		}
	})
}

// A client that has sent a part of a command is not at a quiet moment: its command is answered first.
func TestCommandInPartIsAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		half, talker := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		half.quiet("SET", "k", "v")
		talker.quiet("HELLO", "3")
		if _, err := io.WriteString(half.nc, "PING\r\n*2\r\n$3\r\nGET\r\n$1\r"); err != nil {
			t.Fatal(err)
		}
		if b, err := half.frame(); err != nil || b != "+PONG\r\n" {
			t.Fatalf("%q, %v", b, err)
		}
		s.drains()
		s.asked(talker)
		talker.ends() // a client that is silent goes
		if _, err := io.WriteString(half.nc, "\nk\r\n"); err != nil {
			t.Fatal(err)
		}
		if b, err := half.frame(); err != nil || b != "$1\r\nv\r\n" {
			t.Errorf("%q, %v", b, err)
		}
		half.ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) {
			t.Errorf("%v", fields)
		}
	})
}

// A client that comes to the next proxy learns why it does not hold the lock that it had, unless it names an OWNER: then it has it still.
func TestHoldersThatWereCutOffAtTheNextProxy(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine, func(o *Options) { o.DrainTimeout = 100 * time.Millisecond })
		next := startStopping(t, redis, engine)
		plain, named := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
		plain.quiet("LOCK", "plain")
		fence := named.quiet("LOCK", "named", "OWNER", "job")
		s.drains()
		plain.ends()
		named.ends()
		s.ended()
		plain, named = dialClient(t, address(next.Server)), dialClient(t, address(next.Server))
		if got := plain.quiet("UNLOCK", "plain"); !strings.HasPrefix(got, "-NOTHELD this connection does not hold the lock") || !strings.Contains(got, "new after a reconnect? name the FENCE") {
			t.Error(got)
		}
		if got := named.quiet("LOCK", "named", "OWNER", "job"); got != fence {
			t.Errorf("%q after %q", got, fence)
		}
		named.script("UNLOCK named OWNER job", ":0", "UNLOCK named OWNER job", ":1")
		plain.script("FORCEUNLOCK plain", ":1")
	})
}

// A Redis that does not answer while the proxy ends costs it a limited time. The end is logged as every other one, and is no failure.
func TestTheDrainEndsThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startStopping(t, redis, EngineAuto, func(o *Options) {
		o.DrainTimeout, o.Upstream.DialTimeout = 2*time.Second, 2*time.Second // a busy machine needs a moment to connect, and for the waiter
	})
	holder, waiter := dialClient(t, address(s.Server)), dialClient(t, address(s.Server))
	holder.script("LOCK k GRACE 0", ":")
	waiter.script("FAIRLOCK j", ":", "UNLOCK j", ":") // Redis knows the script: it is called once for each attempt
	before := scriptCalls(t, redis)
	waiter.send("FAIRLOCK", "k")
	// A client whose attempt is on its way is cut off, too: it may get the lock. The second attempt comes when the proxy has subscribed.
	waitFor(t, "both attempts of the waiter", func() bool { return scriptCalls(t, redis) >= before+2 })
	waitFor(t, "the waiter", func() bool { return s.shared.Locks.Waiting() == 1 })
	redis.Do(t, "PING") // their answers have been sent before this one
	redis.Pause()
	defer redis.Continue()
	s.drains()
	if last := s.ended(); last["clients_cut"] != int64(1) || last["locks_left"] != int64(1) {
		t.Errorf("%v", last)
	}
	if n := s.logs.FilterMessage("the clean-up of locks was given up: they end with their leases").Len(); n != 1 {
		t.Errorf("%d entries about the clean-up", n)
	}
}

// scriptCalls is how often Redis has been asked to run a script.
func scriptCalls(t *testing.T, redis *redistest.Server) int {
	t.Helper()
	return redis.Info(t, "commandstats", "cmdstat_eval:calls=", "cmdstat_evalsha:calls=")
}
