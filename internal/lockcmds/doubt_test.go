package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Copies of a call that arrive when its session has ended, or when the owner has another grant.

func TestReleaseInDoubtOfASessionThatEndsTakesNoOtherHold(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	for _, options := range []string{"", " GRACE 0"} {
		for _, own := range []int64{1, 0} {
			a, b := p.session(2), p.session(2)
			b.fence("LOCK k OWNER me")
			b.fence("LOCK k OWNER me")
			a.fence("LOCK k OWNER me" + options)
			if own == 0 {
				a.want("UNLOCK k OWNER me", ":0")
			}
			a.Lane.Fail(contract.ErrInDoubt)
			answer := a.Lane.HoldBack()
			a.send("UNLOCK k OWNER me") // Redis executes it
			a.executed(3 - own)
			a.Lock()
			a.End()
			a.Unlock()
			answer() // its answer is lost: a copy is sent, behind the end of the session
			a.Lane.Close()
			p.cleanedUp()
			equal(t, "holds", p.holds("k", "me"), itoa(1+own))
			b.do("FORCEUNLOCK k")
		}
	}
}

func TestExtensionIsForTheOwnersPresentGrant(t *testing.T) {
	p, q := twoProxies(t, leaseOfAMinute)
	redis := p.srv.Client(t)
	a, b, c := p.session(2), q.session(2), p.session(2)
	old := a.fence("LOCK k OWNER me")
	b.want("UNLOCK k OWNER me", ":1")
	b.fence("LOCK k OWNER me")
	late := script.Extend{Key: "k", Part: script.Part{Owner: "me", Session: p.ownerOf(a), Request: 1000, Fence: old}, Lease: time.Second}.Call()
	if _, err := runFor(t.Context(), p.e.client, late, script.DecodeExtended); err != nil {
		t.Fatal(err)
	}
	if left := redis.PTTL(t.Context(), "k").Val(); left < 30*time.Second {
		t.Errorf("a late copy of an extension of the earlier grant leaves %v", left)
	}
	a.want("EXTENDLOCK k PX 600000 OWNER me", ":1")
	if left := redis.PTTL(t.Context(), "k").Val(); left < 5*time.Minute {
		t.Errorf("an extension of the present grant leaves %v", left)
	}
	c.Lane.Fail(contract.ErrInDoubt) // its proxy does not know the grant any more, so a copy could find a later one
	c.want("EXTENDLOCK k PX 60000 OWNER me", inDoubtReply)
}

func TestUnlockIsForWhatRedissonHasAcquiredForTheOwner(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, leaseOfAMinute), startProxy(t, srv, nil)
	redis := srv.Client(t)
	a, b := p.session(2), q.session(2)
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 60000 OWNER me"} {
		a.fence("LOCK k OWNER me")
		b.want("UNLOCK k OWNER me", ":1")
		redis.HSet(t.Context(), "k", "me", 1)
		redis.PExpire(t.Context(), "k", time.Minute)
		a.want(command, ":1")
		redis.Del(t.Context(), "k")
	}
}

func TestExtensionNeedsNoMemory(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	redis := p.srv.Client(t)
	a := p.session(2)
	for _, owner := range []string{"", " OWNER me"} {
		a.fence("LOCK k PX 60000" + owner)
		redis.ConfigSet(t.Context(), "maxmemory", "1")
		a.want("EXTENDLOCK k PX 60000"+owner, ":1")
		redis.ConfigSet(t.Context(), "maxmemory", "0")
		a.want("UNLOCK k"+owner, ":1")
	}
}

// TestARepeatedReleasePromisesNoLongerLease: the first copy has set the lease, and the second one has changed nothing.
func TestARepeatedReleasePromisesNoLongerLease(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	redis := p.srv.Client(t)
	for _, command := range []string{"UNLOCK k", "EXTENDLOCK k PX 60000"} {
		for _, owner := range []string{"", " OWNER me"} {
			a := p.session(2)
			a.fence("LOCK k" + owner)
			a.fence("LOCK k" + owner)
			a.Lane.Fail(contract.ErrInDoubt)
			answer := a.withheld(command + owner)
			limit := time.Now().Add(time.Minute)
			redis.PExpire(t.Context(), "k", 2*time.Minute) // so that the copy finds no lease to make longer
			answer()
			a.reply()
			if p.deadline("k").After(limit) {
				t.Errorf("%s: the proxy expects a lease that no copy has set", command+owner)
			}
			a.do("FORCEUNLOCK k")
		}
	}
}
