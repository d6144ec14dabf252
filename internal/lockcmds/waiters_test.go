package lockcmds

import (
	"runtime"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestLockWithoutTTLIsLookedAtOncePerLease(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 200 * time.Millisecond })
	w := p.session(2)
	start := time.Now()
	srv.Do(t, "HSET", "k", "somebody", "1")
	w.waits("LOCK k")
	w.quiet(500 * time.Millisecond)
	if n, leases := p.attempts.Load(), int64(time.Since(start)/(200*time.Millisecond)); n > leases+3 {
		t.Errorf("%d attempts in %d leases", n, leases)
	}
	srv.Do(t, "DEL", "k") // nobody is told
	fenceIn(t, w.reply())
}

func TestWaitersDoNotPoll(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a := p.session(2)
	a.fence("LOCK k")
	for range 20 {
		w := p.session(2)
		w.waits("LOCK k")
		f := p.session(2)
		f.waits("FAIRLOCK k")
	}
	before := int64(0)
	redistest.Eventually(t, patience, "the end of the deciding attempts", func() bool {
		last := before
		a.quiet(100 * time.Millisecond)
		before = p.attempts.Load()
		return before == last && before >= 21
	})
	a.quiet(500 * time.Millisecond)
	if n := p.attempts.Load() - before; n != 0 {
		t.Errorf("%d attempts while nothing happened", n)
	}
}

func TestThousandsOfWaitersCostLittle(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a := p.session(2)
	a.fence("LOCK k")
	const n = 10_000
	sessions := make([]*session, n)
	shared := p.lane()
	t.Cleanup(shared.Close)
	for i := range sessions {
		s := locktest.New(t, p.e, p.next.Add(1), 2, shared)
		s.Replies, s.Pushes = make(chan string, 2), make(chan string, 1)
		sessions[i] = &session{s, t, p}
	}
	goroutines := runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, s := range sessions {
		s.send("LOCK k")
		if shared.Backlog() > 500 {
			redistest.Eventually(t, patience, "the lane to catch up", func() bool { return shared.Backlog() == 0 })
		}
	}
	sessions[n-1].awaitWaiting()
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes per waiter", each)
	if each > 2048 {
		t.Errorf("%d bytes per waiter", each)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 20 {
		t.Errorf("%d more goroutines", more)
	}
	// All but the first hang up; the first gets the lock.
	for _, s := range sessions[1:] {
		s.Lock()
		s.End()
		s.Unlock()
	}
	a.want("UNLOCK k", ":1")
	fenceIn(t, sessions[0].reply())
	sessions[0].want("UNLOCK k", ":1")
	if !p.e.noWaiter() || p.e.opts.Waiting.Load() != 0 {
		t.Errorf("%d waiters left", p.e.opts.Waiting.Load())
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	srv := redistest.Start(t)
	good := startProxy(t, srv, nil).e.opts
	for name, change := range map[string]func(*Options){
		"address":  func(o *Options) { o.Redis = nil },
		"uuid":     func(o *Options) { o.UUID = "" },
		"pool":     func(o *Options) { o.Jobs = nil },
		"lease":    func(o *Options) { o.Lease = time.Millisecond },
		"negative": func(o *Options) { o.MaxWaiters = -1 },
		"grace":    func(o *Options) { g := -time.Second; o.Grace = &g },
	} {
		bad := good
		change(&bad)
		if _, err := New(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNewcomersJoinTheQueueWithoutAsking(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	holder, first, other := p.session(2), p.session(2), p.session(2)
	holder.fence("LOCK k OWNER team")
	first.send("LOCK k")
	p.awaitAttempt("k")
	var waiters []*session
	for _, line := range []string{"LOCK k", "TRYLOCK k WAIT 60000"} {
		w := p.session(2)
		w.waits(line)
		if n := w.Lane.Answered.Load(); n != 0 {
			t.Errorf("%s with others waiting: %d scripts", line, n)
		}
		waiters = append(waiters, w)
	}
	// These may get it at once, so Redis is asked.
	other.want("TRYLOCK k", "(nil)")
	other.fence("LOCK k OWNER team")
	other.want("UNLOCK k OWNER team", ":0")
	// Behind a command that is on its way, its place is behind it.
	other.Lock()
	caller := other.Caller()
	caller.NothingPending = false
	cmd, _ := grammar.Parse(locktest.Words("LOCK k"))
	p.e.Start(caller, cmd)
	other.Unlock()
	other.awaitWaiting()
	equal(t, "scripts", other.Lane.Answered.Load(), int64(4))
	holder.want("UNLOCK k OWNER team", ":1")
	for _, w := range append([]*session{first}, append(waiters, other)...) {
		fenceIn(t, w.reply())
		w.want("UNLOCK k", ":1")
	}
}

// scriptCalls is how many scripts Redis has executed.
func scriptCalls(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	return srv.Info(t, "commandstats", "cmdstat_eval:calls=", "cmdstat_evalsha:calls=")
}

// With all contenders here a hand-over is one script, plus for FAIRLOCK the one that takes a place in the queue. Now
// and then the lock is freed for everybody, on a slow machine more often, and that costs a few more.
func TestScriptsPerHandOver(t *testing.T) {
	srv := redistest.Start(t)
	for _, c := range []struct {
		verb string
		most int
	}{{"LOCK", 1}, {"FAIRLOCK", 2}} {
		p := startProxy(t, srv, leaseOfAMinute)
		const contenders, turns = 8, 40
		var sessions []*session
		holder := p.session(2)
		holder.fence("LOCK k")
		for range contenders {
			s := p.session(2)
			s.waits(c.verb + " k")
			sessions = append(sessions, s)
		}
		before, handovers := scriptCalls(t, srv), p.handovers.Load()
		holder.want("UNLOCK k", ":1")
		for range turns {
			for _, s := range sessions {
				fenceIn(t, s.reply())
				s.want("UNLOCK k", ":1")
				s.waits(c.verb + " k")
			}
		}
		scripts := scriptCalls(t, srv) - before
		const grants = contenders * turns
		freed := grants - int(p.handovers.Load()-handovers)
		if most := c.most*grants + 4*freed + contenders; scripts > most || freed > grants/2 {
			t.Errorf("%s: %d scripts for %d grants, %d of them not handed over", c.verb, scripts, grants, freed)
		}
		for _, s := range sessions {
			s.hangUp()
		}
		srv.Do(t, "DEL", "k")
	}
}

// The lease of a lock may end earlier than those who wait for it were told, without a message.
func TestNewcomerCorrectsWhenToLookAgain(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, leaseOfAMinute)
	srv.Do(t, "HSET", "k", "somebody", "1")
	srv.Do(t, "PEXPIRE", "k", "600000")
	const stranger = "aaaaaaaa-0000-4000-8000-000000000001:11"
	srv.Do(t, "RPUSH", "redisson_lock_queue:{k}", stranger) // so that our fair waiter does not look at the lock
	srv.Do(t, "ZADD", "redisson_lock_timeout:{k}", time.Now().Add(time.Hour).UnixMilli(), stranger)
	fair, plain := p.session(2), p.session(2)
	fair.waits("FAIRLOCK k")
	redistest.Eventually(t, patience, "the deciding attempt", func() bool { return p.attempts.Load() >= 1 })
	srv.Do(t, "PEXPIRE", "k", "300")
	plain.fence("LOCK k")
}

func TestHowAQuestionHasEnded(t *testing.T) {
	for err, want := range map[error]table.Trouble{
		nil: table.OK, contract.ErrInDoubt: table.Passing, contract.ErrUnsent: table.Passing, script.Error("NOPERM no"): table.Final,
	} {
		if got := failureOf(err); got != want {
			t.Errorf("%v: %d", err, got)
		}
	}
}

// A re-entry sets the lease anew. If that makes it end earlier, waiters at other proxies are told: else they would wait
// on a free lock.
func TestReentryThatShortensTheLeaseWakesWaitersElsewhere(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	for _, waiter := range []string{"LOCK", "FAIRLOCK"} {
		for _, c := range []struct{ first, again string }{
			{"LOCK k PX 60000", "LOCK k PX 300"},
			{"LOCK k PX 60000", "TRYLOCK k PX 300"},
			{"FAIRLOCK k PX 60000", "FAIRLOCK k PX 300"},
			{"LOCK k PX 60000 OWNER job", "LOCK k PX 300 OWNER job"},
			{"LOCK k PX 60000 OWNER job", "FAIRLOCK k PX 300 OWNER job"},
			{"LOCK k PX 60000", "LOCK k MAXHOLD 300"},
			{"LOCK k PX 60000", "EXTENDLOCK k PX 300"},
		} {
			a, b := p.session(2), q.session(2)
			a.fence(c.first)
			b.waits(waiter + " k")
			b.quiet(50 * time.Millisecond) // it has asked, and knows when the lease ends
			a.do(c.again)
			start := time.Now()
			fenceIn(t, b.reply())
			if took := time.Since(start); took > patience/2 {
				t.Errorf("%s behind %s, %s: granted after %v", waiter, c.first, c.again, took)
			}
			b.want("UNLOCK k", ":1")
			a.hangUp()
		}
	}
}
