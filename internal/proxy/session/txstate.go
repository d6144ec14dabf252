package session

// This file follows a transaction of one connection, as far as Redis has confirmed it. It does no I/O.

// txState describes the open transaction of a pin, as far as Redis has confirmed it.
type txState struct {
	inTx     bool
	watching bool
	opening  int // MULTIs without an answer yet
	queued   int // commands sent on the pin that a transaction would queue
	base     int // queued when this transaction began
	changes  []queuedChange
	traces   bool // a queued command may leave a trace on the connection
	keeps    bool // one that the session needs
}

// A queuedChange is an AUTH or a SELECT that EXEC carries out.
type queuedChange struct {
	index int // position among the queued commands
	identityChange
}

// mayBeOpen reports whether Redis has accepted a MULTI, or may accept one that has been sent.
func (tx *txState) mayBeOpen() bool { return tx.inTx || tx.opening > 0 }

// queue notes an AUTH or a SELECT that is sent next.
func (tx *txState) queue(c identityChange) {
	c.user, c.password = loggedUser(c.user), "" // EXEC's reply says no more than whether it was accepted
	tx.changes = append(tx.changes, queuedChange{tx.queued - tx.base, c})
	tx.count()
}

// count notes the command that is sent next: a transaction would queue it.
func (tx *txState) count() { tx.queued++ }

// opened notes that Redis has accepted the MULTI before which base commands had been sent.
func (tx *txState) opened(base int) { tx.inTx, tx.base = true, base }

// end notes that the transaction is over.
func (tx *txState) end() {
	tx.inTx, tx.watching, tx.changes, tx.traces, tx.keeps = false, false, nil, false, false
}
