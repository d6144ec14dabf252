package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestTheShorterLeaseCountsWhileTheAnswerIsUnknown: Redis has executed the command, and nobody can tell. The other client gets the lock when
// the shorter lease ends. By then the holder knows that it has lost the lock.
func TestTheShorterLeaseCountsWhileTheAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, gate := startGated(t, srv, time.Minute)
	q := startProxy(t, srv, nil)
	for _, c := range []struct{ hold, line, push, reply string }{
		{"LOCK k", "EXTENDLOCK k PX 200", "deadline", lostLeaseWords},
		{"LOCK k PX 60000", "EXTENDLOCK k PX 200", "expired", lostLeaseWords},
		{"LOCK k", "TRYLOCK k PX 200", "deadline", "(nil)"},
		{"LOCK k PX 60000", "TRYLOCK k PX 200", "expired", "(nil)"},
	} {
		for _, owner := range []string{"", " OWNER me"} {
			a, b := p.session(3), q.session(2)
			fence := a.fence(c.hold + owner)
			gate.shut()
			a.Lane.Fail(contract.ErrInDoubt)
			a.send(c.line + owner)
			equal(t, c.line+owner, a.push(), ">[lock-lost k :"+itoa(fence)+" "+c.push+"]")
			b.fence("LOCK k WAIT 10000")
			gate.open()
			equal(t, c.line+owner, a.reply(), c.reply)
			a.Lane.Fail(nil)
			p.cleanedUp()
			b.want("UNLOCK k", ":1")
		}
	}
}

// TestAHoldGoesOnWithTheShorterLease: a renewal never makes a lease shorter, so the proxy cannot know which one goes on.
func TestAHoldGoesOnWithTheShorterLease(t *testing.T) {
	srv := redistest.Start(t)
	p, gate := startGated(t, srv, time.Minute)
	a := p.session(3)
	for _, line := range []string{"EXTENDLOCK k PX 7000", "TRYLOCK k PX 7000"} {
		a.fence("LOCK k")
		gate.shut()
		a.Lane.Fail(contract.ErrInDoubt)
		answer := a.Lane.HoldBack()
		limit := time.Now().Add(7 * time.Second)
		a.send(line)
		answer()
		redistest.Eventually(t, patience, "the shorter lease", func() bool { return p.deadline("k").Before(limit.Add(time.Second)) })
		a.Lane.Fail(nil)
		gate.open()
		a.reply()
		a.want("EXTENDLOCK k PX 60000", ":1")
		if p.deadline("k").Before(time.Now().Add(50 * time.Second)) {
			t.Errorf("%s: a longer lease is not believed in any more", line)
		}
		a.do("FORCEUNLOCK k")
		p.cleanedUp()
	}
}
