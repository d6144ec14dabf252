package table

// Kind is the rules of one kind of lock that concern several holders and waiters. It is a value without state, which
// the caller has. Two kinds are compared by ==.
type Kind interface {
	// Reenters reports whether an acquire by a holder deepens the hold. Else each acquire is a grant of its own.
	Reenters() bool
	// Shares reports whether a lock may have any number of other holders beside one of this kind: so a grant has the next
	// waiter ask.
	Shares() bool
	// HandsOver reports whether the script that releases a hold of this kind can grant the lock to a waiter of the other
	// kind.
	HandsOver(to Kind) bool
}
