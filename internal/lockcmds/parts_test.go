package lockcmds

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// cleanedUp returns when the engine has done what the end of sessions has left to do.
func (p *proxy) cleanedUp() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.e.jobs.Wait(ctx)
	if ctx.Err() != nil {
		p.t.Fatal("the clean-up does not end")
	}
}

// holds is how often the owner holds the lock, as Redis has it.
func (p *proxy) holds(key, owner string) string {
	p.t.Helper()
	return p.srv.Client(p.t).HGet(p.t.Context(), key, owner).Val()
}

// onOneAndTwo runs a test whose sessions are at one proxy, and at two.
func onOneAndTwo(t *testing.T, f func(t *testing.T, p, q *proxy)) {
	t.Run("one proxy", func(t *testing.T) {
		t.Parallel()
		p := startProxy(t, redistest.Start(t), nil)
		f(t, p, p)
	})
	t.Run("two proxies", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		f(t, startProxy(t, srv, nil), startProxy(t, srv, nil))
	})
}

func TestTheEndOfASessionEndsAGrantInWhichItAloneHasTakenPart(t *testing.T) {
	t.Parallel()
	onOneAndTwo(t, func(t *testing.T, p, q *proxy) {
		for _, mode := range []string{"", " SHARED"} {
			for _, second := range []string{"LOCK k PX 60000 OWNER me", "EXTENDLOCK k PX 60000 OWNER me"} {
				a, b, w := p.session(2), q.session(3), p.session(2)
				a.fence("LOCK k OWNER me GRACE 0" + mode)
				a.fence("LOCK k OWNER me GRACE 0" + mode)
				w.waits("LOCK k")
				a.hangUp()
				fenceIn(t, w.reply())
				w.want("UNLOCK k", ":1")

				a = p.session(2)
				a.fence("LOCK k OWNER me GRACE 0" + mode)
				b.do(second + mode)
				held := p.holds("k", "me")
				a.hangUp()
				p.cleanedUp()
				equal(t, "holds", p.holds("k", "me"), held)
				if ttl := p.srv.Client(t).PTTL(t.Context(), "k").Val(); ttl < 50*time.Second {
					t.Fatalf("ttl %v", ttl)
				}
				w.want("FORCEUNLOCK k", ":1")
			}
		}
	})
}

func TestReleaseByAnotherSessionIsOneOfTheFirst(t *testing.T) {
	t.Parallel()
	onOneAndTwo(t, func(t *testing.T, p, q *proxy) {
		a, b, c := p.session(2), q.session(2), q.session(2)
		a.fence("LOCK k OWNER me GRACE 0")
		a.fence("LOCK k OWNER me GRACE 0")
		b.want("UNLOCK k OWNER me", ":0")
		a.hangUp()
		p.cleanedUp()
		c.fence("TRYLOCK k")
	})
}

func TestGraceShortensOnlyWhatTheSessionHoldsAlone(t *testing.T) {
	t.Parallel()
	onOneAndTwo(t, func(t *testing.T, p, q *proxy) {
		a, b := p.session(2), q.session(2)
		a.fence("LOCK k OWNER me PX 60000 GRACE 100")
		b.fence("LOCK k OWNER me PX 60000 GRACE 100")
		a.hangUp()
		p.cleanedUp()
		b.hangUp() // the hold of the first is still there
		q.cleanedUp()
		if ttl := p.srv.Client(t).PTTL(t.Context(), "k").Val(); ttl < 50*time.Second {
			t.Fatalf("ttl %v", ttl)
		}
		equal(t, "holds", p.holds("k", "me"), "2")
	})
}

func TestOwnerThatComesBackHasWhatItLeft(t *testing.T) {
	t.Parallel()
	onOneAndTwo(t, func(t *testing.T, p, q *proxy) {
		a, b := p.session(2), q.session(2)
		fence := a.fence("LOCK k OWNER me PX 60000")
		a.hangUp()
		p.cleanedUp()
		equal(t, "fence", b.fence("LOCK k OWNER me PX 60000 GRACE 0"), fence)
		b.hangUp()
		q.cleanedUp()
		equal(t, "holds", p.holds("k", "me"), "2") // until the lease ends
	})
}

func TestReleaseOnItsWayIsNotDroppedTwice(t *testing.T) {
	p, q := twoProxies(t, nil)
	a, b := p.session(2), q.session(2)
	a.fence("LOCK k OWNER me GRACE 0")
	b.fence("LOCK k OWNER me")
	answer := a.Lane.HoldBack()
	a.send("UNLOCK k OWNER me")
	a.hangUp()
	p.cleanedUp()
	answer()
	redistest.Eventually(t, patience, "the release", func() bool { return p.holds("k", "me") == "1" })
	b.want("UNLOCK k OWNER me", ":1")
}

func TestReleaseThatCouldNotBeSentBeforeTheHangUpIsDone(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k OWNER me GRACE 0")
	a.Lane.Fail(contract.ErrUnsent)
	a.send("UNLOCK k OWNER me")
	a.hangUp()
	b.fence("LOCK k WAIT 5000")
}

func TestRefusedReleaseStaysOurs(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k OWNER me GRACE 0")
	a.want("UNLOCK k OWNER me FENCE 12", otherFence)
	a.Lane.Fail(contract.ErrUnsent)
	a.want("UNLOCK k OWNER me", "unreachable")
	a.hangUp()
	p.cleanedUp()
	b.fence("TRYLOCK k")
}

func TestUnlockOfALostLeaseReleasesNothingElse(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b := p.session(3), q.session(2)
	fence := itoa(a.fence("LOCK k OWNER me PX 1500"))
	b.fence("LOCK k OWNER me PX 60000")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
	a.want("UNLOCK k OWNER me", lostLeaseWords)
	p.eventuallyHeld("k", "me", "2")
	a.want("UNLOCK k OWNER me", ":0") // now it knows, and acts for the owner as any session may
	a.want("UNLOCK k OWNER me", ":1")
	redistest.Eventually(t, patience, "the other proxy to hear of it", func() bool { return q.e.Holds() == 0 })
	b.want("UNLOCK k OWNER me", notOwnerReply)
}

func TestUnlockThatReleasesSaysSoInSpiteOfAnEarlierLoss(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(3), p.session(2)
	for _, c := range []struct{ line, reply string }{
		{"UNLOCK k OWNER me", ":0"}, {"UNLOCK k OWNER me", ":1"}, {"EXTENDLOCK k OWNER me PX 60000", ":1"},
	} {
		a.fence("LOCK k OWNER me PX 1500")
		a.push()
		redistest.Eventually(t, patience, "the lease to end", func() bool { return p.holds("k", "me") == "" })
		b.fence("LOCK k OWNER me")
		if c.reply == ":0" {
			b.fence("LOCK k OWNER me")
		}
		a.want(c.line, c.reply)
		b.do("FORCEUNLOCK k")
		a.want("UNLOCK k OWNER me", notOwnerReply) // the loss is not told any more
	}
}

// A connection counts by its own acquires and releases. What others release for the owner does not end its renewals.
func TestAConnectionRenewsALockThatOthersHaveReleasedForItsOwner(t *testing.T) {
	t.Parallel()
	onOneAndTwo(t, func(t *testing.T, p, q *proxy) {
		a, b, c := p.session(2), q.session(3), q.session(2)
		a.fence("LOCK k OWNER me")
		b.fence("LOCK k OWNER me")
		c.want("UNLOCK k OWNER me", ":0")
		a.hangUp()
		p.cleanedUp()
		equal(t, "holds", p.holds("k", "me"), "1")
		before := q.deadline("k")
		redistest.Eventually(t, patience, "a renewal", func() bool { return q.deadline("k").After(before) })
		b.want("UNLOCK k OWNER me", ":1")
	})
}

// The end of a session without holds, or with GRACE 0, leaves the lease of the owner's other sessions renewed.
func TestTheOthersLeaseIsRenewedBehindASessionsEnd(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	third := p.session(2)
	third.fence("LOCK k OWNER me")
	for _, options := range []string{"", " GRACE 0", " GRACE 100"} {
		a := p.session(2)
		a.fence("LOCK k OWNER me" + options)
		if options == "" {
			a.want("UNLOCK k OWNER me", ":0")
		}
		a.hangUp()
		p.cleanedUp()
		before := p.deadline("k")
		redistest.Eventually(t, patience, "a renewal"+options, func() bool { return p.deadline("k").After(before) })
	}
}

// A re-entry that was rolled back may leave its lease in Redis, although the owner was not given it.
func TestTheLeaseOfARolledBackReentryIsEndedWithTheHold(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a := p.session(3)
	fence := itoa(a.fence("LOCK k PX 3000 OWNER me"))
	a.want("TRYLOCK k PX 60000 OWNER me SYNC 1", "-NOTSYNCED 0 of 1 replicas had the grant in time, and it was rolled back")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
	p.eventuallyHeld("k", "me", "")
}
