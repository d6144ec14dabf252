package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestTheShorterLeaseCountsWhileTheAnswerIsUnknown: Redis has executed the command, and nobody can tell. The other
// client gets the lock when the shorter lease ends. By then the holder knows that it has lost the lock.
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
