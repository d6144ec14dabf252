package waiters

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/slowlog"
)

// noteHolder notes the holder behind which the acquire begins to wait. Requires no locks of this package.
func (w *waiter) noteHolder() {
	if w.x.Slow == nil || w.x.Defaults().Slow.Wait == 0 {
		return
	}
	holder := w.x.Holds.Holder(w.lock())
	if holder.Owner == "" {
		holder.Owner = slowlog.Elsewhere
	}
	w.behind = &holder
}

// noteSlow logs the end of an acquire that has taken long.
func (w *waiter) noteSlow(now time.Time, outcome string) {
	took := now.Sub(w.began)
	if !w.x.Slow.SlowWait(took) {
		return
	}
	c := w.session().Client
	e := slowlog.Entry{
		At: now, Kind: slowlog.Wait, Key: w.lock(), By: slowlog.Party{Owner: w.claim.Key().Owner, Addr: c.Addr, Name: c.Name},
		Took: took, Outcome: outcome,
	}
	if w.behind != nil {
		e.Behind = *w.behind
	}
	w.x.Slow.Add(e)
}

// outcomeOf is the log's word for the outcome of a wait without the lock.
func outcomeOf(o queue.Outcome) string {
	switch o {
	case queue.Null:
		return slowlog.TimedOut
	case queue.Gone:
		return slowlog.HungUp
	default:
		return slowlog.Failed
	}
}
