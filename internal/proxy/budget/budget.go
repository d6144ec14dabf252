// Package budget keeps the memory of all clients together below one limit. It does no I/O and does not know the purpose
// of the memory.
//
//	owner's memory changes ─▶ Account.Charge ─▶ Budget.used
//	                                              ├─ above the limit ─▶ reap ─▶ the largest owners are cut
//	                                              │                     the others wait meanwhile (WhenFits)
//	                                              └─ half used       ─▶ Allowance shrinks: owners are read less
//
// The first Free bytes of a client are not charged, so an ordinary client costs one comparison and touches no shared
// memory. Beyond that, charges move in steps.
package budget

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// Free is the number of bytes that an owner has without a charge.
	Free = 32 << 10

	// step is the unit to which charges are rounded up.
	step = 32 << 10

	// leastAllowance is the number of bytes that an owner may have even if nothing is left: one read of a client's
	// socket.
	leastAllowance = 64 << 10

	// allowanceShare is the number of owners that may use up the rest of the first half of the budget.
	allowanceShare = 32
)

// An Owner has memory that is charged to an Account. Its methods require no locks of this package.
type Owner interface {
	// Measure charges the owner's present memory, and returns it in bytes.
	Measure() int

	// Cut makes the owner give up its memory, because it is the largest owner and the budget is exceeded. It charges
	// the rest. Cutting twice does no harm.
	Cut(bytes int)
}

// A Budget is the memory that all owners together may have. Its methods may be called from any goroutine.
type Budget struct {
	limit int64
	start func(task func()) bool
	used  atomic.Int64

	reaping atomic.Bool

	mu       sync.Mutex
	accounts map[*Account]struct{} // the accounts with a charge
	paused   []func()              // see WhenFits
}

// New returns a budget of limit bytes. start runs a task in a goroutine, or returns false if there will be no more of
// them.
func New(limit int64, start func(task func()) bool) *Budget {
	return &Budget{limit: limit, start: start, accounts: map[*Account]struct{}{}}
}

// Limit is the number of bytes that all owners together may have.
func (b *Budget) Limit() int64 { return b.limit }

// Used is the number of charged bytes. It may exceed the limit for a moment.
func (b *Budget) Used() int64 { return b.used.Load() }

// Allowance is the number of bytes, at most most, that an owner may have of memory whose growth can be stopped. It
// shrinks as the first half of the budget is used up. The other half is for growth that cannot be stopped.
func (b *Budget) Allowance(most int) int {
	left := (b.limit/2 - b.used.Load()) / allowanceShare
	return int(min(int64(most), max(left, leastAllowance)))
}

// reap cuts the largest owners until the others fit.
func (b *Budget) reap() {
	for b.used.Load() > b.limit && b.cutLargest() {
	}
	b.reaping.Store(false)
	b.mu.Lock()
	paused := b.paused
	b.paused = nil
	b.mu.Unlock()
	for _, f := range paused {
		f()
	}
}

// WhenFits calls f once, in another goroutine, when owners have been cut because the budget is exceeded. It returns
// false, and does not keep f, if none are about to be. An owner that stops growing until then keeps hundreds of others
// from growing faster than they can be cut.
func (b *Budget) WhenFits(f func()) bool {
	if b.used.Load() <= b.limit {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.reaping.Load() {
		return false
	}
	b.paused = append(b.paused, f)
	return true
}

// cutLargest reports false if no client is left to be cut.
func (b *Budget) cutLargest() bool {
	type share struct {
		owner Owner
		bytes int
	}
	var shares []share
	for _, a := range b.charged() {
		// A charge may be too high by now.
		if n := a.owner.Measure(); n > Free && !a.cut.Load() {
			shares = append(shares, share{a.owner, n})
			continue
		}
	}
	slices.SortFunc(shares, func(x, y share) int { return cmp.Compare(y.bytes, x.bytes) })
	for _, s := range shares {
		if b.used.Load() <= b.limit {
			return true
		}
		s.owner.Cut(s.bytes)
	}
	return len(shares) > 0
}

func (b *Budget) charged() []*Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*Account, 0, len(b.accounts))
	for a := range b.accounts {
		if a.charge.Load() > 0 {
			list = append(list, a)
		}
	}
	return list
}

// An Account is the charged memory of one owner. Open makes it ready. Its methods are called by one goroutine at a
// time.
type Account struct {
	budget *Budget
	owner  Owner
	charge atomic.Int64 // of used
	known  bool         // in accounts
	cut    atomic.Bool
}

// Open ties the account to its budget and its owner.
func (a *Account) Open(b *Budget, owner Owner) { a.budget, a.owner = b, owner }

// Charge sets the number of bytes that the owner has now. Above the limit, another goroutine cuts the largest owners.
func (a *Account) Charge(bytes int) {
	was := a.charge.Load()
	if bytes <= Free && was == 0 {
		return
	}
	charge := int64(0)
	if bytes > Free {
		charge = (int64(bytes) + step - 1) / step * step
	}
	if charge == was {
		return
	}
	if !a.known {
		a.known = true
		a.budget.mu.Lock()
		a.budget.accounts[a] = struct{}{}
		a.budget.mu.Unlock()
	}
	a.charge.Store(charge)
	if a.budget.used.Add(charge-was) > a.budget.limit && charge > was && a.budget.reaping.CompareAndSwap(false, true) {
		if !a.budget.start(a.budget.reap) {
			a.budget.reaping.Store(false)
		}
	}
}

// Bytes is the charge.
func (a *Account) Bytes() int { return int(a.charge.Load()) }

// Condemn says that the owner has been cut. The rest of its charge leaves by itself.
func (a *Account) Condemn() { a.cut.Store(true) }

// Close removes the charge.
func (a *Account) Close() {
	a.budget.used.Add(-a.charge.Swap(0))
	if a.known {
		a.known = false
		a.budget.mu.Lock()
		delete(a.budget.accounts, a)
		a.budget.mu.Unlock()
	}
}
