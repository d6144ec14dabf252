package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// shared is the lock of SHARED: any number of owners hold it beside each other, and none beside an exclusive holder. In
// Redis it has the layout of Redisson's read lock. The scripts are those of exclusive, but for the acquire.
type shared struct{}

// Mode implements lockKind.
func (shared) Mode() string { return script.ModeShared }

// Reenters implements table.Kind.
func (shared) Reenters() bool { return true }

// Shares implements table.Kind.
func (shared) Shares() bool { return true }

// HandsOver implements table.Kind.
func (shared) HandsOver(table.Kind) bool { return false }

// Ask implements lockKind. A fair acquire takes or keeps its place in the queue, unless it does not wait.
func (shared) Ask(a asking, w *table.Waiter) question {
	return question{placed(a, w).Call(), script.DecodeCrowd}
}

// placed asks at the waiter's own place, or at that of the crowd whose first waiter it is.
func placed(a asking, w *table.Waiter) script.Shared {
	s := script.Shared{Acquire: a.Acquire, Wait: a.FairWait, Enqueue: a.Waits}
	if first, stays, enqueue := w.First(); w.Fair {
		s.Way, s.Place = script.AtOwnPlace, w.Place
	} else if first {
		s.Way, s.Place = script.AtCrowdPlace, script.Names{Lock: a.Key}.PlaceOf(a.Crowd)
		s.Stays, s.Enqueue = stays, enqueue
	}
	return s
}

// Release implements lockKind.
func (shared) Release(r script.Release) script.Call {
	r.Shared = true
	return r.Call()
}

// HandOver implements lockKind. No waiter can have the lock next: other holders may be left.
func (k shared) HandOver(h script.HandOver) script.Call { return k.Release(h.Release) }

// Extend implements lockKind.
func (shared) Extend(x script.Extend) script.Call {
	x.Shared = true
	return x.Call()
}

// Renew implements lockKind.
func (shared) Renew(r []script.Renewal) script.Call {
	return script.Renew{Renewals: r, Shared: true}.Call()
}

// Drop implements lockKind.
func (shared) Drop(d script.Drop) script.Call {
	d.Shared = true
	return d.Call()
}

// Prove implements lockKind.
func (shared) Prove(p script.Prove) script.Call {
	p.Shared = true
	return p.Call()
}
