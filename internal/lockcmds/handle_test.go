package lockcmds

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// The fence is the handle of a grant: any connection releases and extends it, and the connection that has acquired it
// has lost nothing.
const notHereWords = "-NOTHELD no connection of this proxy holds the lock with this fence " +
	"(EXTENDLOCK needs the proxy through which it was acquired)"

func TestAnyConnectionReleasesAGrantByItsFence(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	for name, by := range map[string]*session{"same proxy": p.session(2), "another proxy": q.session(2)} {
		for _, owner := range []string{"", " OWNER job"} {
			a := p.session(3)
			fence := itoa(a.fence("LOCK k PX 60000" + owner))
			if name == "another proxy" {
				listening(t, p.srv, 2)
			}
			by.want("UNLOCK k FENCE 1", "-NOTHELD the lock is not held with this fence")
			by.want("EXTENDLOCK k PX 70000 FENCE 1", notHereWords)
			if name == "same proxy" {
				by.want("EXTENDLOCK k PX 70000 FENCE "+fence, ":1")
				if ttl := p.srv.Do(t, "PTTL", "k").(int64); ttl < 60000 {
					t.Errorf("%s%s: the lease has %d ms", name, owner, ttl)
				}
			} else {
				by.want("EXTENDLOCK k PX 70000 FENCE "+fence, notHereWords)
			}
			if again := itoa(a.fence("LOCK k PX 60000" + owner)); again != fence { // the handle is of all holds of the grant
				t.Fatalf("fence %s, and then %s", fence, again)
			}
			by.want("UNLOCK k FENCE "+fence, ":1")
			redistest.Eventually(t, patience, "the holder's proxy to know", func() bool { return p.e.Holds() == 0 })
			by.want("UNLOCK k FENCE "+fence, "-NOTHELD the lock is not held with this fence")
			if got := a.do("UNLOCK k" + owner); !strings.HasPrefix(got, "-NOTHELD") {
				t.Errorf("%s%s: the connection that acquired it is answered %s", name, owner, got)
			}
			a.quiet(20 * time.Millisecond)
			if len(a.Pushes) > 0 {
				t.Errorf("%s%s: a loss is told: %s", name, owner, <-a.Pushes)
			}
			a.hangUp()
		}
	}
	if n := p.losses.Load(); n != 0 {
		t.Errorf("%d losses are counted", n)
	}
}

// Redis may refuse to end it, or not find it: nothing is said of the hold, which the watchdog asks about.
func TestAGrantThatWasNotEndedIsStillKept(t *testing.T) {
	for _, answer := range []resp.Value{locktest.Refusal("NOPERM no"), {Kind: resp.Array}} {
		w, b := newLockWorld(t), newClient(2)
		h := w.acquire(t, newClient(1), "", nil)
		w.Start(b.caller, grammar.Command{Verb: grammar.Unlock, Key: lock, Fence: fence})
		b.Answer(answer, nil)
		if len(b.Replies) != 1 || w.table.Hold(h.Key) == nil {
			t.Errorf("%v: %q, and the hold is forgotten", answer, b.Replies)
		}
	}
}

// A loss of the connection's own grant has nothing to do with another grant, and a waiter gets the lock at once.
func TestAHandleIsOfOneGrant(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(2), p.session(2), p.session(2)
	old := itoa(b.fence("LOCK k"))
	c.want("FORCEUNLOCK k", ":1")
	fence := itoa(a.fence("LOCK k"))
	c.send("LOCK k")
	redistest.Eventually(t, patience, "the waiter", func() bool { return p.e.count("k") == 1 })
	b.want("UNLOCK k FENCE "+fence, ":1")
	next := fenceIn(t, c.reply())
	b.want("UNLOCK k FENCE "+old, lostLeaseWords)
	b.want("UNLOCK k FENCE "+itoa(next), ":1")
}

// A session that has lost so many locks that the first ones are forgotten is told that each of them may be lost.
func TestAGrantThatMayBeLostIsNotSaidToBeNotHeld(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	first := itoa(a.fence("LOCK first"))
	b.want("FORCEUNLOCK first", ":1")
	for i := range 4096 {
		a.Lost.Add(table.Key{Lock: strconv.Itoa(i), Owner: "me", Kind: exclusive{}}, 1)
	}
	a.want("UNLOCK first FENCE "+first, lostLeaseWords)
	a.want("EXTENDLOCK first PX 1000 FENCE "+first, lostLeaseWords)
	a.want("UNLOCK other FENCE "+itoa(b.fence("LOCK other")), ":1")
	b.want("UNLOCK first FENCE "+first, lostLeaseWords)
}

// Any client may publish. A message that says that a grant was released, and that is wrong or comes late, changes
// nothing.
func TestAMessageDoesNotEndAGrant(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b := p.session(2), p.session(2)
	fence := a.fence("LOCK k")
	a.fence("LOCK k")
	listening(t, srv, 1)
	owner := fmt.Sprint(srv.Do(t, "HKEYS", "k").([]any)[0])
	for range 100 {
		srv.Do(t, "PUBLISH", script.ForcedChannel, script.Forced{Owner: owner, Fence: fence, Handle: true}.Message("k"))
	}
	// A publisher that does not know the owner cannot have a loss pass as a release.
	for i, owner := range []string{"", "another"} {
		other := b.fence("LOCK other")
		srv.Do(t, "DEL", "other")
		srv.Do(t, "PUBLISH", script.ForcedChannel, script.Forced{Owner: owner, Fence: other, Handle: true}.Message("other"))
		redistest.Eventually(t, patience, "the loss to be told", func() bool { return p.losses.Load() == int64(i+1) })
		b.want("UNLOCK other", lostLeaseWords)
	}
	if got := a.do("LOCKLIST"); !strings.Contains(got, "holds :2") {
		t.Errorf("the grant has changed: %s", got)
	}
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k", ":1")
}
