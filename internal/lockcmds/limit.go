package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// limit is the lock of LIMIT: at most n hold it at the same time, each acquire by a permit of its own, and none beside an
// exclusive or a shared holder. In Redis it has the layout of Redisson's permit semaphore. The scripts are those of exclusive,
// but for the acquire and the hand-over: they know a permit by its fence.
type limit struct{}

// Mode implements lockKind.
func (limit) Mode() string { return script.ModeLimit }

// Reenters implements table.Kind.
func (limit) Reenters() bool { return false }

// Shares implements table.Kind. The answer to an acquire says whether another permit is left.
func (limit) Shares() bool { return false }

// HandsOver implements table.Kind.
func (limit) HandsOver(to table.Kind) bool { return to == limit{} }

// Ask implements lockKind. A fair acquire takes or keeps its place in the queue, unless it does not wait.
func (limit) Ask(a asking, w *table.Waiter) question {
	return question{script.Limited{Shared: placed(a, w)}.Call(), script.DecodeCrowd}
}

// Release implements lockKind.
func (limit) Release(r script.Release) script.Call { return r.Call().OfPermits(1) }

// HandOver implements lockKind.
func (limit) HandOver(h script.HandOver) script.Call { return h.CallOfLimit() }

// Extend implements lockKind.
func (limit) Extend(x script.Extend) script.Call { return x.Call().OfPermits(1) }

// Renew implements lockKind.
func (limit) Renew(r []script.Renewal) script.Call {
	return script.Renew{Renewals: r}.Call().OfPermits(len(r))
}

// Drop implements lockKind.
func (limit) Drop(d script.Drop) script.Call { return d.Call().OfPermits(1) }

// Prove implements lockKind.
func (limit) Prove(p script.Prove) script.Call { return p.Call().OfPermits(1) }
