package lockcmds

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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

// A wait that may end is none.
func TestWhichCirclesAreDeadlocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second, third, waits, closes string
		circle                              []string
	}{
		"owners with names":                    {"LOCK a OWNER x", "LOCK b OWNER y", "", "LOCK b OWNER x", "LOCK a OWNER y", []string{"a", "b"}},
		"an owner that waits for itself":       {"", "LOCK b LIMIT 1", "", "", "LOCK b LIMIT 1", []string{"b"}}, // each permit is a grant of its own
		"the only permit":                      {"LOCK a LIMIT 1", "LOCK b LIMIT 1", "", "FAIRLOCK b LIMIT 1", "LOCK a LIMIT 1", []string{"a", "b"}},
		"all permits":                          {"LOCK a LIMIT 2", "LOCK b", "LOCK a LIMIT 2", "LOCK b", "LOCK a LIMIT 1", []string{"a", "b"}},
		"one of several permits":               {"LOCK a LIMIT 2", "LOCK b", "LOCK a LIMIT 2", "LOCK b", "LOCK a LIMIT 2", nil},
		"a fixed lease":                        {"LOCK a PX 60000", "LOCK b", "", "LOCK b", "LOCK a", nil},
		"a limit of renewals":                  {"LOCK a MAXHOLD 60000", "LOCK b", "", "LOCK b", "LOCK a", nil},
		"another owner's wait on a connection": {"LOCK a OWNER x", "LOCK b", "", "LOCK b OWNER y", "LOCK a", nil},
		"another owner closes it":              {"LOCK a", "LOCK b OWNER x", "", "LOCK b", "LOCK a", nil},
	} {
		p := startProxy(t, redistest.Start(t), nil)
		a, b, d := p.session(2), p.session(2), p.session(2)
		if c.third != "" {
			d.fence(c.third)
		}
		b.fence(c.second)
		if c.first != "" {
			a.fence(c.first)
			a.waits(c.waits)
		}
		if c.circle == nil {
			equal(t, name, b.do(c.closes+" WAIT 100"), "(nil)")
		} else {
			deadlock(t, b.do(c.closes), c.circle...)
		}
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

// A LOCK that waits for a hold of its own connection is logged once for each client name.
func TestAWaitForAHoldOfTheSameConnectionIsLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	w := newLockWorld(t)
	w.opts.Reentries = &Reentries{Logger: zap.New(core)}
	for i, c := range []struct{ first, second string }{
		{"LOCK a OWNER x", "LOCK a OWNER y"}, {"LOCK b OWNER x", "LOCK b OWNER y"}, // the same name
		{"LOCK c OWNER x PX 60000", "LOCK c OWNER y"}, {"LOCK d SHARED", "LOCK d SHARED OWNER y"},
	} {
		a := w.client(uint64(i + 1)).sends(c.first)
		a.answered(grantOfFence(7), nil)
		a.sends(c.second)
		a.answered(busy(0), nil)
		w.Pass(longWait - 1)
		if i == 0 && logs.Len() > 0 {
			t.Error("logged too early")
		}
		w.Pass(1)
	}
	if all := logs.All(); len(all) != 1 || all[0].ContextMap()["key"] != "a" {
		t.Errorf("logged: %v", all)
	}
}
