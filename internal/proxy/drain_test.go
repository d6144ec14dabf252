package proxy_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// stopping is a proxy whose stop a test begins and waits for.
type stopping struct {
	*proxytest.Proxy
	t    *testing.T
	stop func() // begins
	over chan struct{}
	logs *observer.ObservedLogs
}

func startStopping(t *testing.T, redis *redistest.Server, change ...func(*proxy.Options)) *stopping {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	opts := proxy.Options{
		Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redis.Addr()},
		DrainTimeout: time.Minute, Logger: zap.New(core),
	}
	for _, f := range change {
		f(&opts)
	}
	srv, stop := proxytest.Serve(t, opts)
	s := &stopping{Proxy: srv, t: t, over: make(chan struct{}), logs: logs}
	s.stop = sync.OnceFunc(func() {
		go func() {
			defer close(s.over)
			stop()
		}()
	})
	t.Cleanup(func() {
		s.stop()
		srv.CloseConns()
		<-s.over
	})
	return s
}

// whileStopping runs a test of a server's stop.
func whileStopping(t *testing.T, test func(t *testing.T, s *stopping), change ...func(*proxy.Options)) {
	t.Helper()
	t.Parallel()
	redis := redistest.Start(t)
	test(t, startStopping(t, redis, change...))
}

// drains begins the stop and returns when clients are being asked to leave.
func (s *stopping) drains() {
	s.stop()
	select {
	case <-s.Stopped():
	case <-time.After(proxytest.Patience):
		s.t.Fatal("the server accepts on")
	}
}

// ended waits for the end, and returns the last entry of the log.
func (s *stopping) ended() map[string]any {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(proxytest.Patience):
		s.t.Fatal("the drain does not end")
	}
	last := s.logs.FilterMessage("stopped").All()
	if len(last) != 1 {
		s.t.Fatalf("%d entries about the end", len(last))
	}
	return last[0].ContextMap()
}

// asked waits until the proxy has asked all clients to leave.
func (s *stopping) asked(talker *proxytest.Client) {
	s.t.Helper()
	talker.Gets(">2\r\n$8\r\ndraining\r\n:")
}

// Clients without locks or state move elsewhere at once; the drain does not wait for its timeout.
func TestQuietClientsAreClosed(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		idle, once, silent := s.Dial(t), s.Dial(t), s.Dial(t)
		idle.Quiet("GET", "k")
		once.Each("LOCK freed", "UNLOCK freed")
		s.drains()
		idle.Ends()
		once.Ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) || fields["locks_left"] != int64(0) {
			t.Errorf("%v", fields)
		}
		silent.Ends()
	})
}

// Each command that a client has sent is answered, and the connection ends behind a reply.
func TestBusyClientsAreClosedBehindAReply(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		const depth = 50
		talker, pipeline := s.Dial(t), s.Dial(t)
		pipeline.Quiet("PING")
		begun, over := make(chan struct{}), make(chan int)
		go func() {
			rounds := 0
			defer func() { over <- rounds }()
			for ; ; rounds++ {
				if _, err := io.WriteString(pipeline.Conn, strings.Repeat("PING\r\n", depth)); err != nil {
					return
				}
				for i := range depth {
					if b, err := pipeline.Frame(); err != nil {
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
		talker.Quiet("HELLO", "3")
		s.drains()
		s.asked(talker)
		talker.Side = &proxytest.Side{T: t} // it may be late
		talker.Send("PING")
		got, err := talker.Frame()
		if late := time.Since(begin) > 200*time.Millisecond; err != nil && late { // a silent client goes
			<-over
			t.Skip("the machine is too slow for this")
		}
		if got != "+PONG\r\n" {
			t.Error(got, err)
		}
		talker.Ends()
		<-over
		s.ended()
	})
}

// A holder goes on, even with further locks, until it has released the last one.
func TestHoldersStayUntilTheirLastRelease(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		holder, talker := s.Dial(t), s.Dial(t)
		talker.Quiet("HELLO", "3")
		holder.Each("LOCK a", "LOCK b")
		s.drains()
		s.asked(talker)
		holder.Script("SET k v", "+OK", "UNLOCK a", ":1", "UNLOCK b", ":1")
		holder.Ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) {
			t.Errorf("%v", fields)
		}
	})
}

func TestWaitersAreToldAndClosed(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		holder, waiter, fair := s.Dial(t), s.Dial(t), s.Dial(t)
		holder.Quiet("LOCK", "k")
		waiter.Send("LOCK", "k")
		fair.Send("FAIRLOCK", "k", "WAIT", "60000")
		proxytest.WaitFor(t, "the waiters", func() bool { return s.Stats().Waiting == 2 })
		s.drains()
		for _, c := range []*proxytest.Client{waiter, fair} {
			c.Gets("-OVERLOADED the proxy is shutting down, connect again\r\n")
			c.Ends()
		}
		holder.Script("UNLOCK k", ":1")
		s.ended()
	})
}

// A transaction, a subscription and a blocked command are not cut off before the time is over.
func TestStateOnAConnectionIsKept(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startStopping(t, redis)
	tx, sub, pop, other := s.Dial(t), s.Dial(t), s.Dial(t), proxytest.Dial(t, redis.Addr())
	tx.Each("MULTI", "SET k v")
	sub.Each("HELLO 3", "SUBSCRIBE news")
	pop.Send("BLPOP", "list", "0")
	proxytest.WaitFor(t, "the blocked client", func() bool { return strings.Contains(other.Quiet("INFO", "clients"), "blocked_clients:1\r\n") })
	s.drains()
	s.asked(sub)
	tx.Script("EXEC", "*1\r\n+OK\r\n")
	tx.Ends()
	other.Quiet("RPUSH", "list", "x")
	pop.Gets("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")
	pop.Ends()
	other.Quiet("PUBLISH", "news", "late")
	sub.ExpectFrame("late")
	if got := sub.Quiet("UNSUBSCRIBE", "news"); !strings.Contains(got, "unsubscribe") {
		t.Error(got)
	}
	sub.Ends()
	s.ended()
}

// Before the listeners close, clients come and work as before, and the proxy says that it is not ready.
func TestClientsAreAcceptedDuringTheDelay(t *testing.T) {
	const delay = 4 * time.Second // a busy machine may need some of it for a client
	whileStopping(t, func(t *testing.T, s *stopping) {
		begun := time.Now()
		s.stop()
		proxytest.WaitFor(t, "the drain", s.Draining)
		c := s.Dial(t)
		c.Script("PING", "+PONG")
		if time.Since(begun) > delay {
			t.Skip("the machine is too slow for this")
		}
		select {
		case <-s.Stopped():
			t.Error("it accepts no more")
		default:
		}
		c.Ends()
		if took := time.Since(begun); took < delay {
			t.Errorf("closed after %s", took)
		}
		if _, err := net.Dial("tcp", s.Proxy.Addr()); err == nil {
			t.Error("a client was accepted after the delay")
		}
		s.ended()
	}, func(o *proxy.Options) { o.DrainDelay = delay })
}

// A connection that was accepted is served, even if its first command comes late.
func TestFirstCommandDuringTheDrainIsServed(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		holder, late := s.Dial(t), s.Dial(t)
		holder.Each("HELLO 3", "LOCK k")
		proxytest.WaitFor(t, "the second client", func() bool { return s.Stats().Clients == 2 })
		s.drains()
		s.asked(holder)
		late.Script("PING", "+PONG")
		late.Ends()
		holder.Quiet("UNLOCK", "k")
		holder.Ends()
		s.ended()
	})
}

// A client that sends nothing does not stay as long as another one has a lock.
func TestAClientWithoutACommandLeavesTheDrain(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		holder, mute := s.Dial(t), s.Dial(t)
		holder.Quiet("LOCK", "k")
		proxytest.WaitFor(t, "the second client", func() bool { return s.Stats().Clients == 2 })
		s.drains()
		mute.Ends()
		holder.Quiet("UNLOCK", "k")
		holder.Ends()
		s.ended()
	})
}

// At the end the log has the number of the clients that were cut off, and the keys of some of the locks that were left.
func TestTheLastEntryNamesWhatWasLeft(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startStopping(t, redis, func(o *proxy.Options) { o.DrainTimeout = 100 * time.Millisecond })
	a, b, idle := s.Dial(t), s.Dial(t), s.Dial(t)
	for i := range proxy.LocksNamed + 5 {
		a.Quiet("LOCK", strconv.Itoa(1000+i), "PX", "60000")
	}
	b.Quiet("LOCK", "z", "PX", "60000")
	idle.Quiet("PING")
	s.drains()
	a.Ends()
	b.Ends()
	idle.Ends()
	fields := s.ended()
	locks, _ := fields["locks"].([]any)
	if fields["clients_cut"] != int64(2) || fields["locks_left"] != int64(proxy.LocksNamed+6) || len(locks) != proxy.LocksNamed || locks[0] != "1000" {
		t.Errorf("cut %v, left %v, %d names", fields["clients_cut"], fields["locks_left"], len(locks))
	}
}

// A client that has sent a part of a command is not at a quiet moment: its command is answered first.
func TestCommandInPartIsAnsweredBeforeTheEnd(t *testing.T) {
	whileStopping(t, func(t *testing.T, s *stopping) {
		half, talker := s.Dial(t), s.Dial(t)
		half.Quiet("SET", "k", "v")
		talker.Quiet("HELLO", "3")
		if _, err := io.WriteString(half.Conn, "PING\r\n*2\r\n$3\r\nGET\r\n$1\r"); err != nil {
			t.Fatal(err)
		}
		half.Gets("+PONG")
		s.drains()
		s.asked(talker)
		talker.Ends() // a client that is silent goes
		if _, err := io.WriteString(half.Conn, "\nk\r\n"); err != nil {
			t.Fatal(err)
		}
		half.Gets("$1\r\nv\r\n")
		half.Ends()
		if fields := s.ended(); fields["clients_cut"] != int64(0) {
			t.Errorf("%v", fields)
		}
	})
}

// A client that comes to the next proxy learns why it does not hold the lock that it had, unless it names an OWNER:
// then it has it still.
func TestHoldersThatWereCutOffAtTheNextProxy(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startStopping(t, redis, func(o *proxy.Options) { o.DrainTimeout = 100 * time.Millisecond })
	next := startStopping(t, redis)
	plain, named := s.Dial(t), s.Dial(t)
	plain.Quiet("LOCK", "plain")
	fence := named.Quiet("LOCK", "named", "OWNER", "job")
	s.drains()
	plain.Ends()
	named.Ends()
	s.ended()
	plain, named = next.Dial(t), next.Dial(t)
	if got := plain.Quiet("UNLOCK", "plain"); !strings.HasPrefix(got, "-NOTHELD this connection does not hold the lock") || !strings.Contains(got, "new after a reconnect? name the FENCE") {
		t.Error(got)
	}
	named.Script("LOCK named OWNER job", fence, "UNLOCK named OWNER job", ":0", "UNLOCK named OWNER job", ":1")
	plain.Script("FORCEUNLOCK plain", ":1")
}

// A Redis that does not answer while the proxy ends costs it a limited time. The end is logged as every other one, and
// is no failure.
func TestTheDrainEndsThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startStopping(t, redis, func(o *proxy.Options) {
		// A busy machine needs a moment to connect, and for the waiter. All is over before the engine's first call, of
		// when the drain begins, has had its five seconds.
		o.DrainTimeout, o.Upstream.DialTimeout = 1500*time.Millisecond, 1500*time.Millisecond
	})
	holder, waiter := s.Dial(t), s.Dial(t)
	holder.Script("LOCK k GRACE 0", ":")
	waiter.Script("FAIRLOCK j", ":", "UNLOCK j", ":") // Redis knows the script: it is called once for each attempt
	before := scriptCalls(t, redis)
	waiter.Send("FAIRLOCK", "k")
	// A client whose attempt is on its way is cut off, too: it may get the lock. The second attempt comes when the
	// proxy has subscribed.
	proxytest.WaitFor(t, "both attempts of the waiter", func() bool { return scriptCalls(t, redis) >= before+2 })
	proxytest.WaitFor(t, "the waiter", func() bool { return s.Stats().Waiting == 1 })
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
