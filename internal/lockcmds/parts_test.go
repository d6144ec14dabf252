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

func TestReleaseThatCouldNotBeSentBeforeTheHangUpIsDone(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k OWNER me GRACE 0")
	a.Lane.Fail(contract.ErrUnsent)
	a.send("UNLOCK k OWNER me")
	a.hangUp()
	b.fence("LOCK k WAIT 5000")
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

// A lease of which one session was told lasts, although another session of its owner was told of an earlier end, by
// another proxy: that proxy tells its own session, and ends nothing.
func TestTheEndOfALeaseLeavesALaterOneOfItsOwner(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", " SHARED", " LIMIT 3"} {
		mode := ""
		if kind == " SHARED" {
			mode = kind
		}
		for _, later := range []string{"EXTENDLOCK k PX 60000 OWNER me" + mode, "LOCK k OWNER me PX 60000" + kind} {
			t.Run(later, func(t *testing.T) {
				t.Parallel()
				p, q := twoProxies(t, leaseOfAMinute)
				a, b, c := p.session(3), q.session(2), q.session(2)
				fence := a.fence("LOCK k OWNER me PX 3000" + kind)
				if b.fence(later); later[0] == 'E' {
					b = c // any session of the owner may release it
				}
				equal(t, "push", a.push(), ">[lock-lost k :"+itoa(fence)+" expired]")
				p.cleanedUp()
				if left := p.srv.Client(t).PTTL(t.Context(), "k").Val(); left < 30*time.Second {
					t.Errorf("%v are left of the lease", left)
				}
				if later[0] == 'L' && kind != " LIMIT 3" { // the hold of the session that was told of a loss stays with it
					b.want("UNLOCK k OWNER me"+mode, ":0")
				}
				b.want("UNLOCK k OWNER me"+mode, ":1")
			})
		}
	}
}
