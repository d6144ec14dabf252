package lockcmds

import (
	"testing"
	"time"
)

// A re-entry sets the lease anew. If that makes it end earlier, waiters at other proxies are told: else they would wait
// on a free lock.
func TestReentryThatShortensTheLeaseWakesWaitersElsewhere(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	for _, waiter := range []string{"LOCK", "FAIRLOCK"} {
		for _, c := range []struct{ first, again string }{
			{"LOCK k PX 60000", "LOCK k PX 300"},
			{"LOCK k PX 60000", "TRYLOCK k PX 300"},
			{"FAIRLOCK k PX 60000", "FAIRLOCK k PX 300"},
			{"LOCK k PX 60000 OWNER job", "LOCK k PX 300 OWNER job"},
			{"LOCK k PX 60000 OWNER job", "FAIRLOCK k PX 300 OWNER job"},
			{"LOCK k PX 60000", "LOCK k MAXHOLD 300"},
			{"LOCK k PX 60000", "EXTENDLOCK k PX 300"},
		} {
			a, b := p.session(2), q.session(2)
			a.fence(c.first)
			b.waits(waiter + " k")
			b.quiet(50 * time.Millisecond) // it has asked, and knows when the lease ends
			a.do(c.again)
			start := time.Now()
			fenceIn(t, b.reply())
			if took := time.Since(start); took > patience/2 {
				t.Errorf("%s behind %s, %s: granted after %v", waiter, c.first, c.again, took)
			}
			b.want("UNLOCK k", ":1")
			a.hangUp()
		}
	}
}
