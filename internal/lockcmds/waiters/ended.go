package waiters

import (
	"math"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/endings"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
)

// noteHolder notes the holder behind which the acquire begins to wait. Requires no locks of this package.
func (w *waiter) noteHolder() {
	if !w.x.Told.Wants(endings.Wait, math.MaxInt64) {
		return
	}
	holder := w.x.Holds.Holder(w.lock())
	if holder.Owner == "" {
		holder.Owner = endings.Elsewhere
	}
	w.behind = &holder
}

// noteEnd tells observers of the end of an acquire. fence is of the grant; 0: there is none.
func (w *waiter) noteEnd(now time.Time, outcome string, fence int64) {
	took := now.Sub(w.began)
	if !w.x.Told.Wants(endings.Wait, took) {
		return
	}
	c := w.session().Client
	e := endings.Ending{
		At: now, Kind: endings.Wait, Key: w.lock(), By: endings.Party{Owner: w.claim.Key().Owner, Addr: c.Addr, Name: c.Name},
		Took: took, Outcome: outcome, Fence: fence, Sync: w.sync,
	}
	if w.behind != nil {
		e.Behind = *w.behind
	}
	w.x.Told.Ended(e)
}

// outcomeOf is the word for the outcome of a wait without the lock.
func outcomeOf(o queue.Outcome) string {
	switch o {
	case queue.Null:
		return endings.TimedOut
	case queue.Gone:
		return endings.HungUp
	default:
		return endings.Failed
	}
}
