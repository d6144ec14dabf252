package lockcmds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// deadlock checks that a reply refuses a wait that closes a circle of those locks.
func deadlock(t *testing.T, reply string, locks ...string) {
	t.Helper()
	want := `-DEADLOCK this client would wait for "` + strings.Join(locks, `", whose holder waits for "`) + `", which this client holds; nothing was done`
	equal(t, "deadlock", reply, want)
}

func TestAWaitThatWouldNeverEndIsRefused(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(2), p.session(2), p.session(2)
	a.fence("LOCK a")
	b.fence("FAIRLOCK b")
	c.fence("LOCK c SHARED")
	a.waits("LOCK b")
	b.waits("FAIRLOCK c")
	c.want("TRYLOCK a", "(nil)") // it does not wait
	deadlock(t, c.do("LOCK a"), "a", "b", "c")
	c.want("UNLOCK c", ":1") // its own locks stayed
	fenceIn(t, b.reply())
	b.want("UNLOCK b", ":1")
	fenceIn(t, a.reply())
	a.want("UNLOCK b", ":1")
	a.want("UNLOCK a", ":1")
	b.want("UNLOCK c", ":1")
	empty(t, p.srv)
}

// A permit and another hold of one owner exclude each other.
func TestAnOwnerDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	for i, c := range [][2]string{
		{"LOCK k", "LOCK k LIMIT 2"},
		{"LOCK k SHARED", "FAIRLOCK k LIMIT 1"},
		{"LOCK k LIMIT 2", "LOCK k"},
		{"LOCK k LIMIT 1", "FAIRLOCK k SHARED"},
		{"LOCK k OWNER x", "LOCK k OWNER x LIMIT 2"},
	} {
		key := "k" + strconv.Itoa(i)
		first, second := strings.Replace(c[0], "k", key, 1), strings.Replace(c[1], "k", key, 1)
		a := p.session(2)
		a.fence(first)
		a.want("TRYLOCK"+second[strings.IndexByte(second, ' '):], "(nil)")
		deadlock(t, a.do(second), key)
	}
}

func TestADeadlockOfOwnersWithNames(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK a OWNER x")
	b.fence("LOCK b OWNER y")
	a.waits("LOCK b OWNER x")
	deadlock(t, b.do("LOCK a OWNER y WAIT 60000"), "a", "b")
}

// Each of these waits may end.
func TestAWaitThatMayEndIsNoDeadlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second, waits, closes string }{
		"a fixed lease":                        {"LOCK a PX 60000", "LOCK b", "LOCK b", "LOCK a"},
		"a limit of renewals":                  {"LOCK a MAXHOLD 60000", "LOCK b", "LOCK b", "LOCK a"},
		"another owner's wait on a connection": {"LOCK a OWNER x", "LOCK b", "LOCK b OWNER y", "LOCK a"},
		"another owner closes it":              {"LOCK a", "LOCK b OWNER x", "LOCK b", "LOCK a"},
	} {
		p := startProxy(t, redistest.Start(t), nil)
		a, b := p.session(2), p.session(2)
		a.fence(c.first)
		b.fence(c.second)
		a.waits(c.waits)
		b.send(c.closes + " WAIT 100")
		equal(t, name, b.reply(), "(nil)")
	}
}

// A named owner that another session has a part in can release, and so can a client elsewhere.
func TestAnOwnerThatIsNotBlockedAltogetherIsNoDeadlock(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, idle, there := p.session(2), p.session(2), p.session(2), q.session(2)
	a.fence("LOCK a OWNER x")
	idle.fence("LOCK a OWNER x")
	b.fence("LOCK b")
	a.waits("LOCK b OWNER x")
	b.want("LOCK a WAIT 100", "(nil)")
	idle.want("UNLOCK a OWNER x", ":0")
	there.fence("LOCK a OWNER x")
	b.want("LOCK a WAIT 100", "(nil)")
}

// The proxy does not know yet that the lock was taken away, and has another holder.
func TestAHoldThatIsLostClosesNoCircle(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK a")
	b.fence("LOCK b")
	a.waits("LOCK b")
	p.srv.Do(t, "DEL", "a")
	newRedisson(t, p.srv, 1, "a").acquire()
	b.want("LOCK a WAIT 200", "(nil)")
}

// Two waits that begin at the same time may each close a circle of their own, and one through the other. When one of
// them is refused, the other circle is still there.
func TestTwoCirclesThatCloseTogetherAreBothFound(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	for range 20 {
		a, b, c := p.session(2), p.session(2), p.session(2)
		b.fence("LOCK b")
		b.fence("LOCK c SHARED")
		a.fence("LOCK a SHARED")
		c.fence("LOCK a SHARED")
		b.waits("LOCK a")
		a.send("LOCK c")
		c.send("LOCK b SHARED")
		for _, s := range []*session{a, c} {
			if got := s.reply(); !strings.HasPrefix(got, "-DEADLOCK ") {
				t.Fatal(got)
			}
			s.want("UNLOCK a", ":1")
		}
		fenceIn(t, b.reply())
		for _, key := range []string{"a", "b", "c"} {
			b.want("UNLOCK "+key, ":1")
		}
	}
}

// What is in the way of the last wait is a waiter, which gives up.
func TestASharedWaiterBehindAnotherWaiterIsNoDeadlock(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, w := p.session(2), p.session(2), q.session(2)
	a.fence("LOCK a SHARED")
	b.fence("LOCK b")
	w.waits("FAIRLOCK a WAIT 500")
	a.waits("LOCK b")
	b.send("LOCK a SHARED")
	equal(t, "the waiter in the way", w.reply(), "(nil)")
	fenceIn(t, b.reply())
}

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
			s.waits("LOCK " + fmt.Sprint("k", (i+1)%len(all)))
		}
		deadlock(t, all[last].reply(), circle...)
		for i := last; i > 0; i-- {
			all[i].want("UNLOCK "+fmt.Sprint("k", i), ":1")
			fenceIn(t, all[i-1].reply())
			all[i-1].want("UNLOCK "+fmt.Sprint("k", i), ":1")
		}
	}
}

// Two that hold one lock shared may wait for each other through a third lock. Other holders, which wait for a lock outside
// of the circle, are not named.
func TestACircleOverProxiesThroughASharedLock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	start := func() *session { return startProxy(t, srv, findsAll).session(2) }
	outside, first, a, b, last := start(), start(), start(), start(), start()
	outside.fence("LOCK z")
	for _, s := range []*session{first, a, last} {
		s.fence("LOCK k SHARED")
	}
	b.fence("LOCK x")
	for s, lock := range map[*session]string{first: "z", last: "z", a: "x"} {
		s.waits("LOCK " + lock)
	}
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
		a.waits("LOCK b")
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
	p := startProxy(t, srv, func(o *Options) { // whose holds are not renewed meanwhile
		findsAll(o)
		o.Lease = time.Minute
	})
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

// A wait that goes on is told again and again, but what others wait for is asked for ever more rarely.
func TestLooksForACircleBecomeRare(t *testing.T) {
	w := newLockWorld(t)
	w.opts.DeadlocksOfAll = true
	a := w.client(1).sends("LOCK held")
	a.answered(grantOfFence(7), nil)
	a.sends("LOCK k")
	a.answered(busy(0), nil)
	w.Own.Answers = slices.Repeat([]any{locktest.Numbers()}, 100)
	w.Pass(longWait + 7*nextLook)
	asked := map[string]int{}
	for _, name := range w.Own.Asked {
		asked[name]++
	}
	if asked["waits"] != 8 || asked["info"] != 4 {
		t.Errorf("asked: %v", asked)
	}
}

// A client that holds no lock is on no circle, and costs nothing.
func TestAWaitOfAClientWithoutLocksIsNotTold(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), findsAll)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK a")
	b.send("LOCK a WAIT 1500")
	equal(t, "the wait", b.reply(), "(nil)")
	if told := p.srv.Client(t).Keys(t.Context(), "lockproxy:waits:*").Val(); len(told) > 0 {
		t.Errorf("told: %q", told)
	}
}
