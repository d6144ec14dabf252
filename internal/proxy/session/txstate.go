package session

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file follows a transaction of one connection, as far as Redis has confirmed it, and reads the reply to EXEC. It
// does no I/O.

// A step is a queued command that changes the session. Its change happens when EXEC runs it.
type step struct {
	index   int                       // position among the queued commands
	apply   func(reply []byte)        // changes the session; nil: no change
	rewrite func(reply []byte) []byte // the reply as the client sees it; nil: unchanged
}

// txState describes the open transaction of a pin, as far as Redis has confirmed it.
type txState struct {
	inTx     bool
	watching bool
	opening  int // MULTIs without an answer yet
	queued   int // commands sent on the pin that a transaction would queue
	base     int // queued when this transaction began
	steps    []step
	names    int // bytes of the names in steps
	edits    int // steps with a rewrite
}

// mayBeOpen reports whether Redis has accepted a MULTI, or may accept one that has been sent.
func (tx *txState) mayBeOpen() bool { return tx.inTx || tx.opening > 0 }

// queue notes the command that is sent next, which changes the session.
func (tx *txState) queue(step step) {
	step.index = tx.queued - tx.base
	tx.count()
	tx.steps = append(tx.steps, step)
	if step.rewrite != nil {
		tx.edits++
	}
}

// MostEdits is how many elements of the reply to an EXEC may have a Rewrite. They are edited in one go, and other
// clients wait meanwhile: about 20 microseconds for each.
const MostEdits = 128

// full reports whether no further step with a rewrite may be queued.
func (tx *txState) full() bool { return tx.inTx && tx.edits >= MostEdits }

// count notes the command that is sent next: a transaction would queue it.
func (tx *txState) count() { tx.queued++ }

// opened notes that Redis has accepted the MULTI before which base commands had been sent.
func (tx *txState) opened(base int) {
	tx.inTx, tx.base, tx.steps, tx.names, tx.edits = true, base, nil, 0, 0
}

// end notes that the transaction is over.
func (tx *txState) end() {
	tx.inTx, tx.watching, tx.steps, tx.names, tx.edits = false, false, nil, 0, 0
}

// changes reports whether the reply to the EXEC may change the session.
func (tx *txState) changes() bool {
	return slices.ContainsFunc(tx.steps, func(step step) bool { return step.apply != nil })
}

// rewrites reports whether the client sees another reply to EXEC than Redis's.
func (tx *txState) rewrites() bool {
	return slices.ContainsFunc(tx.steps, func(step step) bool { return step.rewrite != nil })
}

// rewritten is the reply to EXEC as the client sees it.
func rewritten(reply []byte, steps []step) []byte {
	elems, ok := resp.Elements(reply)
	if !ok {
		return reply
	}
	for _, step := range steps {
		if step.rewrite != nil && step.index < len(elems) {
			elems[step.index] = step.rewrite(elems[step.index])
		}
	}
	return slices.Concat(reply[:bytes.IndexByte(reply, '\n')+1], bytes.Join(elems, nil))
}
