package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// exclusive is the lock of LOCK, TRYLOCK and FAIRLOCK: one owner holds it, and may acquire it again. In Redis it has the
// layout of Redisson's RLock.
type exclusive struct{}

// Mode implements lockKind.
func (exclusive) Mode() string { return script.ModeExclusive }

// Reenters implements table.Kind.
func (exclusive) Reenters() bool { return true }

// Shares implements table.Kind.
func (exclusive) Shares() bool { return false }

// HandsOver implements table.Kind.
func (exclusive) HandsOver(to table.Kind) bool { return to == exclusive{} }

// Ask implements lockKind. A fair acquire takes or keeps its place in the queue, unless it does not wait.
func (exclusive) Ask(a asking, w *table.Waiter) question {
	first, stays, enqueue := w.First()
	switch {
	case w.Fair:
		return question{script.Fair{Acquire: a.Acquire, Place: w.Place, Wait: a.FairWait, Enqueue: a.Waits}.Call(), script.DecodeAcquired}
	case first:
		crowd := script.Crowd{Acquire: a.Acquire, Wait: a.FairWait, Crowd: a.Crowd, Stays: stays, Enqueue: enqueue}
		return question{crowd.Call(), script.DecodeCrowd}
	default:
		return question{a.Acquire.Call(), script.DecodeAcquired}
	}
}

// Release implements lockKind.
func (exclusive) Release(r script.Release) script.Call { return r.Call() }

// HandOver implements lockKind.
func (exclusive) HandOver(h script.HandOver) script.Call { return h.Call() }

// Extend implements lockKind.
func (exclusive) Extend(x script.Extend) script.Call { return x.Call() }

// Renew implements lockKind.
func (exclusive) Renew(r []script.Renewal) script.Call { return script.Renew{Renewals: r}.Call() }

// Drop implements lockKind.
func (exclusive) Drop(d script.Drop) script.Call { return d.Call() }

// Prove implements lockKind.
func (exclusive) Prove(p script.Prove) script.Call { return p.Call() }
