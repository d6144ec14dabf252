package lockcmds

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestSessionsThatEndLeaveNoFields: a hold is taken on one connection and released on another, and the connections end.
func TestSessionsThatEndLeaveNoFields(t *testing.T) {
	srv := redistest.Start(t)
	redis := srv.Client(t)
	p := startProxy(t, srv, leaseOfAMinute)
	for _, options := range []string{"", " GRACE 5000"} {
		third := p.session(2)
		third.fence("LOCK k OWNER me")
		for i := range 40 {
			a, b := p.session(2), p.session(2)
			a.fence("LOCK k OWNER me" + options)
			release := func() { b.want("UNLOCK k OWNER me", ":0") }
			if i%2 == 0 {
				release()
				a.hangUp()
			} else {
				a.hangUp()
				p.cleanedUp()
				release()
			}
			b.hangUp()
		}
		p.cleanedUp()
		if n := redis.HLen(t.Context(), "k").Val(); n > 4 {
			t.Errorf("%d fields are left of 80 sessions%s: %v", n, options, redis.HGetAll(t.Context(), "k").Val())
		}
		equal(t, "holds", p.holds("k", "me"), "1")
		third.want("UNLOCK k OWNER me", ":1")
	}
}

// TestReleasesOfALaterGrantAllCount: the proxy knows an earlier grant of the owner, and the session pipelines. Redis
// executes its commands in another order then, but forgets none.
func TestReleasesOfALaterGrantAllCount(t *testing.T) {
	srv := redistest.Start(t)
	redis := srv.Client(t)
	p, q := startProxy(t, srv, leaseOfAMinute), startProxy(t, srv, leaseOfAMinute)
	a, b := p.session(2), q.session(2)
	for range 40 {
		a.fence("LOCK k OWNER me")
		b.want("UNLOCK k OWNER me", ":1")
		b.fence("LOCK k OWNER me")
		b.fence("LOCK k OWNER me")
		commands := []string{"UNLOCK k OWNER me", "LOCK k OWNER me", "UNLOCK k OWNER me", "UNLOCK k OWNER me"}
		for _, command := range commands {
			a.Send(command)
		}
		for range commands {
			if reply := a.Next(patience); reply[0] != ':' {
				t.Fatalf("reply %s", reply)
			}
		}
		if left := redis.HGetAll(t.Context(), "k").Val(); len(left) > 0 {
			t.Fatalf("two and one acquires and three releases leave %v", left)
		}
		p.cleanedUp()
		q.cleanedUp()
	}
}

func TestASecondReleaseOfALaterGrantIsNotHeld(t *testing.T) {
	p, q := twoProxies(t, leaseOfAMinute)
	a, b := p.session(2), q.session(2)
	a.fence("LOCK k OWNER me")
	b.want("UNLOCK k OWNER me", ":1")
	b.fence("LOCK k OWNER me")
	a.Send("UNLOCK k OWNER me")
	a.Send("UNLOCK k OWNER me")
	replies := a.Next(patience) + a.Next(patience)
	if !strings.Contains(replies, ":1") || !strings.Contains(replies, "-NOTHELD") {
		t.Errorf("replies %s, want 1 and NOTHELD", replies)
	}
}

// TestASessionThatHeldNothingHasLostNothing: another session of its owner has.
func TestASessionThatHeldNothingHasLostNothing(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 9000 OWNER me"} {
		a, c := p.session(2), p.session(2)
		a.fence("LOCK k OWNER me")
		p.srv.Do(t, "DEL", "k")
		if reply := c.do(command); !strings.HasPrefix(reply, "-NOTHELD") {
			t.Errorf("%s: %s", command, reply)
		}
		if reply := a.do("UNLOCK k OWNER me"); !strings.HasPrefix(reply, "-LOSTLEASE") {
			t.Errorf("the session that held the lock: %s", reply)
		}
	}
}

// TestASessionThatHasReleasedItsHoldsIsNotToldOfALoss: the sessions that still hold the lock for the owner are.
func TestASessionThatHasReleasedItsHoldsIsNotToldOfALoss(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b, c := p.session(3), p.session(3), p.session(2)
	fence := itoa(a.fence("LOCK k OWNER me"))
	b.fence("LOCK k OWNER me")
	a.want("UNLOCK k OWNER me", ":0")
	if held := p.e.List(0); len(held) != 1 || held[0].Client.Addr != b.Caller().Info.Addr {
		t.Errorf("held: %+v, want it by the client that still holds the lock", held)
	}
	c.want("FORCEUNLOCK k", ":1")
	equal(t, "push to the holder", b.push(), ">[lock-lost k :"+fence+" forced]")
	select { // the sessions are told in their order, so the push to a would have come
	case push := <-a.Pushes:
		t.Errorf("the session that holds nothing gets %s", push)
	default:
	}
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 9000 OWNER me"} {
		if reply := a.do(command); !strings.HasPrefix(reply, "-NOTHELD") {
			t.Errorf("%s of the session that holds nothing: %s", command, reply)
		}
	}
	b.want("UNLOCK k OWNER me", lostLeaseWords)
}

// TestALockIsNotRenewedForASessionThatHasReleasedIt: the owner's other session is at another proxy, which dies.
func TestALockIsNotRenewedForASessionThatHasReleasedIt(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, leaseOfAMinute)
	a, b := p.session(3), q.session(2)
	a.fence("LOCK k OWNER me")
	b.fence("LOCK k OWNER me")
	a.want("UNLOCK k OWNER me", ":0")
	equal(t, "holds at the proxy of the released one", p.e.Holds(), 0)
	if again := a.fence("LOCK k OWNER me"); again == 0 || p.e.Holds() != 1 {
		t.Errorf("acquired again: fence %d, %d holds", again, p.e.Holds())
	}
	a.want("UNLOCK k OWNER me", ":0")
	equal(t, "losses", p.losses.Load(), int64(0))
}
