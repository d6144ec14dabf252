package lockcmds

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// findsAll is a proxy that finds circles over several proxies.
func findsAll(o *Options) { o.DeadlocksOfAll = true }

// The client of each proxy holds a lock and waits for the next one's. The one that began to wait last is refused.
func TestOfACircleOverProxiesTheLastWaitIsRefused(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{
		{"LOCK k%d", "LOCK k%d"},
		{"LOCK k%d", "FAIRLOCK k%d", "FAIRLOCK k%d SHARED", "LOCK k%d"},
	} {
		srv := redistest.Start(t)
		var all []*session
		for i, line := range lines {
			s := startProxy(t, srv, findsAll).session(2)
			all = append(all, s)
			s.fence(fmt.Sprintf(line, i))
		}
		last := len(all) - 1
		var circle []string
		for i, s := range all {
			circle = append(circle, fmt.Sprint("k", i))
			s.send("LOCK " + fmt.Sprint("k", (i+1)%len(all)))
			s.awaitWaiting()
		}
		deadlock(t, all[last].reply(), circle...)
		for i := last; i > 0; i-- {
			all[i].want("UNLOCK "+fmt.Sprint("k", i), ":1")
			fenceIn(t, all[i-1].reply())
			all[i-1].want("UNLOCK "+fmt.Sprint("k", i), ":1")
		}
	}
}

// Two that hold one lock shared may wait for each other through a third lock.
func TestACircleOverProxiesThroughASharedLock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, b := startProxy(t, srv, findsAll).session(2), startProxy(t, srv, findsAll).session(2)
	a.fence("LOCK k SHARED")
	b.fence("LOCK k SHARED")
	b.fence("LOCK x")
	a.send("LOCK x")
	a.awaitWaiting()
	b.send("LOCK k")
	deadlock(t, b.reply(), "k", "x")
	b.want("UNLOCK x", ":1")
	fenceIn(t, a.reply())
}

// Each of these waits may end, or did. The last command waits for longer than any circle goes unseen.
func TestAWaitThatMayEndIsNoDeadlockOverProxies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second, waits string }{
		"a fixed lease":             {"LOCK a PX 60000", "LOCK b", "LOCK b"},
		"a limit of renewals":       {"LOCK a MAXHOLD 60000", "LOCK b", "LOCK b"},
		"an owner with a name":      {"LOCK a OWNER x", "LOCK b", "LOCK b OWNER x"},
		"another owner's wait":      {"LOCK a OWNER x", "LOCK b", "LOCK b"},
		"one of several permits":    {"LOCK a", "LOCK b LIMIT 1", "LOCK b LIMIT 1"},
		"a wait that has ended":     {"LOCK a", "LOCK b", "LOCK b WAIT 1300"},
		"a lock of nobody else":     {"LOCK a", "LOCK b", "LOCK c"},
		"a wait of a shared waiter": {"LOCK a", "LOCK b SHARED", "LOCK b SHARED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p, q := startProxy(t, srv, findsAll), startProxy(t, srv, findsAll)
			a, b := p.session(2), q.session(2)
			a.fence(c.first)
			b.fence(c.second)
			a.send(c.waits)
			b.send("LOCK a WAIT 4000")
			equal(t, "the wait", b.reply(), "(nil)")
		})
	}
	t.Run("a proxy that finds its own alone", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		a, b := startProxy(t, srv, findsAll).session(2), startProxy(t, srv, nil).session(2)
		a.fence("LOCK a")
		b.fence("LOCK b")
		a.send("LOCK b")
		a.awaitWaiting()
		b.send("LOCK a WAIT 4000")
		equal(t, "the wait", b.reply(), "(nil)")
		if n := len(srv.Client(t).Keys(t.Context(), "lockproxy:waits:*").Val()); n > 1 {
			t.Errorf("%d waits were told", n)
		}
	})
}

// A crowd of holders is not read, so no circle through it is found.
func TestACrowdOfHoldersIsOnNoCircle(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, findsAll)
	a, b := p.session(2), p.session(2)
	for i := range mostHolders + 1 {
		a.fence(fmt.Sprintf("LOCK k SHARED OWNER x%d", i))
	}
	b.fence("LOCK x")
	before := commandCalls(t, srv)
	b.send("LOCK k WAIT 1400") // one look
	equal(t, "the wait", b.reply(), "(nil)")
	if n := commandCalls(t, srv) - before; n > mostHolders {
		t.Errorf("%d calls", n)
	}
}

// A client that holds no lock is on no circle, and costs nothing.
func TestAWaitOfAClientWithoutLocksIsNotTold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, findsAll)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK a")
	b.send("LOCK a WAIT 1500")
	equal(t, "the wait", b.reply(), "(nil)")
	if told := srv.Client(t).Keys(t.Context(), "lockproxy:waits:*").Val(); len(told) > 0 {
		t.Errorf("told: %q", told)
	}
}
