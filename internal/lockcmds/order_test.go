package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Answers, messages and deadlines reach the engine in another order than that in which Redis did what they tell of.

// eventuallyHeld waits until Redis counts so many holds of an owner; empty: the lock is free.
func (p *proxy) eventuallyHeld(key, owner, holds string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "holds: "+holds, func() bool { return p.holds(key, owner) == holds })
}

// ownerOf is the owner of the session's own for which it holds the lock k; it may have none.
func (p *proxy) ownerOf(s *session) string {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if c := p.e.sessions[s.ID]; c != nil {
		if h, _ := c.Own("k"); h != nil {
			return h.Owner
		}
	}
	return "none"
}

func TestReentryThatIsAnsweredAfterTheDeadline(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(3), p.session(2)
	for i, verb := range []string{"LOCK", "TRYLOCK"} {
		fence := a.fence("LOCK k PX 2000")
		a.fence("LOCK k PX 2000")
		answer := a.withheld(verb + " k PX 60000")
		equal(t, "push", a.push(), ">[lock-lost k :"+itoa(fence)+" expired]")
		answer()
		if again := fenceIn(t, a.reply()); again <= fence {
			t.Errorf("%s: fence %d for a lock that was lost with fence %d", verb, again, fence)
		}
		equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
		b.want("TRYLOCK k", "(nil)")
		a.want("UNLOCK k", ":1")
		equal(t, "losses", p.losses.Load(), int64(i+1))
	}
}

func TestReleaseThatIsAnsweredAfterTheDeadline(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, c := range []struct {
		name  string
		holds int
		reply string
		lost  int64
	}{
		{"the last one", 1, ":1", 0},
		{"holds are left", 2, lostLeaseWords, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, srv, nil)
			a, b := p.session(3), p.session(2)
			for range c.holds {
				a.fence("LOCK k PX 2000")
			}
			owner := p.ownerOf(a)
			srv.Do(t, "PEXPIRE", "k", 60000) // Redis judges later
			answer := a.Lane.HoldBack()
			a.send("UNLOCK k")
			redistest.Eventually(t, patience, "the deadline", func() bool { return p.e.Holds() == 0 })
			answer()
			equal(t, "unlock", a.reply(), c.reply)
			p.eventuallyHeld("k", owner, "")
			b.fence("LOCK k")
			b.want("UNLOCK k", ":1")
			a.want("UNLOCK k", notHeldWords)
			equal(t, "losses", p.losses.Load(), c.lost)
		})
	}
}

func TestExtensionThatIsAnsweredAfterTheDeadline(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(3), p.session(2)
	fence := itoa(a.fence("LOCK k OWNER me PX 2000"))
	answer := a.withheld("EXTENDLOCK k OWNER me PX 60000")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
	answer()
	equal(t, "extend", a.reply(), lostLeaseWords)
	p.eventuallyHeld("k", "me", "")
	b.fence("LOCK k")
}

func TestOlderAnswerDoesNotProlongALease(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(3), p.session(3)
	fence := itoa(a.fence("LOCK k OWNER me PX 60000"))
	answer := b.withheld("EXTENDLOCK k OWNER me PX 60000")
	a.fence("LOCK k OWNER me PX 3000")
	answer()
	equal(t, "extend", b.reply(), ":1")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
}
