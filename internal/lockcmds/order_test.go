package lockcmds

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Answers, messages and deadlines reach the engine in another order than that in which Redis did what they tell of.

// eventuallyHeld waits until Redis counts so many holds of an owner; empty: the lock is free.
func (p *proxy) eventuallyHeld(key, owner, holds string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "holds: "+holds, func() bool { return p.holds(key, owner) == holds })
}

// nameOf is the name of a session.
func (p *proxy) nameOf(s *session) string {
	return script.SessionName(p.e.opts.UUID, fmt.Sprintf("%012d", s.ID))
}

// placeOf is the place in the queue of the acquire that the session waits for.
func (p *proxy) placeOf(s *session) string {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.sessions[s.ID].asks.Place
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

func TestForceUnlockIsFasterThanTheGrantItEnds(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(3), p.session(2), p.session(2)
	answer := a.withheld("LOCK k")
	c.want("FORCEUNLOCK k", ":1")
	answer()
	fence := itoa(fenceIn(t, a.reply()))
	got := a.push() // by the second message, or by the next renewal
	if got != ">[lock-lost k :"+fence+" forced]" && got != ">[lock-lost k :"+fence+" gone]" {
		t.Errorf("push: %s", got)
	}
	b.fence("LOCK k")
	a.want("UNLOCK k", lostLeaseWords)
}

// The holders are told although the answer to the command is on its way.
func TestForceUnlockIsToldToThoseWhoRelease(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(3), p.session(3), p.session(2)
	fence := itoa(a.fence("LOCK k OWNER me"))
	b.fence("LOCK k OWNER me")
	listening(t, p.srv, 1) // the second message comes behind the answer
	forced := c.withheld("FORCEUNLOCK k")
	equal(t, "push", b.push(), ">[lock-lost k :"+fence+" forced]")
	a.want("UNLOCK k OWNER me", lostLeaseWords)
	forced()
	equal(t, "force", c.reply(), ":1")
	b.want("UNLOCK k OWNER me", lostLeaseWords)
}

func TestEndOfAGrantThatIsNotAnsweredYetWakesTheNext(t *testing.T) {
	p, q := twoProxies(t, leaseOfAMinute)
	a, b, c, elsewhere := p.session(2), p.session(3), p.session(2), q.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	p.awaitAttempt("k")
	c.waits("LOCK k")
	answer := a.withheld("UNLOCK k") // hands over to b
	elsewhere.want("FORCEUNLOCK k", ":1")
	redistest.Eventually(t, patience, "the message", func() bool {
		return p.waitQueue("k", func(q *table.Queue) bool {
			next, _ := q.First() // b
			_, again := next.Asks()
			return again
		})
	})
	answer()
	equal(t, "unlock", a.reply(), ":1")
	fenceIn(t, b.reply())
	fenceIn(t, c.reply())
}

func TestPlaceOfTheSameOwnerIsAskedForAgain(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, leaseOfAMinute)
	a, b, holder := p.session(2), p.session(2), q.session(2)
	holder.fence("LOCK k PX 60000")
	a.send("FAIRLOCK k OWNER o")
	redistest.Eventually(t, patience, "a's subscriptions", func() bool {
		return p.settled("k")
	})
	answer := b.withheld("FAIRLOCK k OWNER o") // finds a's place
	a.hangUp()                                 // takes it away
	p.cleanedUp()
	answer()
	b.awaitWaiting()
	redistest.Eventually(t, patience, "b in the queue", func() bool {
		return len(srv.Client(t).LRange(context.Background(), script.Queue("k"), 0, -1).Val()) == 1
	})
	holder.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
}

func TestAbandonedReleaseIsOfTheGrantItNames(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b := p.session(3), p.session(3)
	a.fence("LOCK k OWNER me")
	answer := b.withheld("UNLOCK k OWNER me FENCE 12")
	b.hangUp()
	answer()
	p.cleanedUp()
	equal(t, "holds", p.holds("k", "me"), "1")
}

func TestLeaseThatWasShortenedIsNoticed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, func(o *Options) { o.Lease = time.Second })
	a, waiter := p.session(2), q.session(2)
	a.fence("LOCK k PX 3600000")
	waiter.send("LOCK k")
	redistest.Eventually(t, patience, "the deciding attempt", func() bool { return q.attempts.Load() >= 1 && q.settled("k") })
	a.fence("LOCK k PX 2000")
	a.hangUp()
	fenceIn(t, waiter.reply())
}

func TestExtensionsAfterTheDeadlineLeaveWhatTheOwnerHoldsElsewhere(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, leaseOfAMinute)
	a, b, elsewhere := p.session(3), p.session(3), q.session(3)
	a.fence("LOCK k OWNER me PX 2000")
	b.fence("LOCK k OWNER me PX 2000")
	elsewhere.fence("LOCK k OWNER me PX 60000")
	first, second := a.Lane.HoldBack(), b.Lane.HoldBack()
	a.send("EXTENDLOCK k OWNER me PX 60000")
	b.send("EXTENDLOCK k OWNER me PX 60000")
	a.push()
	b.push()
	first()
	second()
	equal(t, "extend", a.reply(), lostLeaseWords)
	equal(t, "extend", b.reply(), lostLeaseWords)
	p.cleanedUp()
	equal(t, "holds", p.holds("k", "me"), "3")
	if left := srv.Client(t).PTTL(t.Context(), "k").Val(); left < 30*time.Second {
		t.Errorf("%v are left of the lease", left)
	}
	elsewhere.want("UNLOCK k OWNER me", ":0")
}

func TestLossDuringAReleaseIsNotRememberedForOthers(t *testing.T) {
	p, q := twoProxies(t, nil)
	a, b, holder, elsewhere := p.session(2), p.session(2), p.session(2), q.session(2)
	holder.fence("LOCK k OWNER me")
	answer := a.withheld("UNLOCK k OWNER me")
	b.fence("LOCK k OWNER me") // proves the first grant to be over
	b.want("UNLOCK k OWNER me", ":1")
	answer()
	equal(t, "unlock", a.reply(), ":1")
	elsewhere.fence("LOCK k OWNER me")
	holder.want("UNLOCK k OWNER me", ":1")
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

func TestSameOwnerIsLetInBeforeAMessageIsHeeded(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	holder, first, stranger, second := p.session(2), p.session(2), p.session(2), p.session(2)
	holder.fence("LOCK k")
	for i, line := range []string{"LOCK k OWNER me", "LOCK k", "LOCK k OWNER me"} {
		w := []*session{first, stranger, second}[i]
		w.waits(line)
	}
	redistest.Eventually(t, patience, "the deciding attempt", func() bool { return p.attempts.Load() >= 1 && p.settled("k") })
	answer := holder.withheld("UNLOCK k") // hands over to the first
	p.e.wake("k")                         // as if a message had come
	answer()
	equal(t, "unlock", holder.reply(), ":1")
	fenceIn(t, first.reply())
	fenceIn(t, second.reply())
	first.want("UNLOCK k OWNER me", ":0")
	second.want("UNLOCK k OWNER me", ":1")
	fenceIn(t, stranger.reply())
}

func TestPlaceOfTheSameOwnerAtAnotherProxyIsAskedForAgain(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, onlyWhenTold)
	holder, a, b := p.session(2), p.session(2), q.session(2)
	holder.fence("LOCK k PX 60000")
	a.waits("FAIRLOCK k OWNER me")
	b.waits("FAIRLOCK k OWNER me") // by a client library that has reconnected
	a.hangUp()
	p.cleanedUp()
	holder.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
}
