package session

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file follows a transaction of one connection, as far as Redis has confirmed it, and reads the reply to EXEC. It
// does no I/O.

// A Step is a queued command that changes the session. Its change happens when EXEC runs it.
type Step struct {
	Index   int                       // position among the queued commands
	Apply   func(reply []byte)        // changes the session; nil: no change
	Rewrite func(reply []byte) []byte // the reply as the client sees it; nil: unchanged
	Verb    string                    // of a subscription command; ""
	Left    int                       // its confirmations
}

// TxState describes the open transaction of a pin, as far as Redis has confirmed it.
type TxState struct {
	InTx     bool
	Watching bool
	Opening  int // MULTIs without an answer yet
	Queued   int // commands sent on the pin that a transaction would queue
	Base     int // queued when this transaction began
	Steps    []Step
	Names    int // bytes of the names in steps
	Edits    int // steps with a Rewrite
}

// queue notes the command that is sent next, which changes the session.
func (tx *TxState) queue(step Step) {
	step.Index = tx.Queued - tx.Base
	tx.count()
	tx.Steps = append(tx.Steps, step)
	if step.Rewrite != nil {
		tx.Edits++
	}
}

// MostEdits is how many elements of the reply to an EXEC may have a Rewrite. They are edited in one go, and other
// clients wait meanwhile: about 20 microseconds for each.
const MostEdits = 128

// full reports whether no further step with a Rewrite may be queued.
func (tx *TxState) full() bool { return tx.InTx && tx.Edits >= MostEdits }

// count notes the command that is sent next: a transaction would queue it.
func (tx *TxState) count() { tx.Queued++ }

// opened notes that Redis has accepted the MULTI before which base commands had been sent.
func (tx *TxState) opened(base int) {
	tx.InTx, tx.Base, tx.Steps, tx.Names, tx.Edits = true, base, nil, 0, 0
}

// subscribes reports whether a subscription command has been queued.
func (tx *TxState) subscribes() bool {
	for _, step := range tx.Steps {
		if step.Verb != "" {
			return true
		}
	}
	return false
}

// end notes that the transaction is over.
func (tx *TxState) end() {
	tx.InTx, tx.Watching, tx.Steps, tx.Names, tx.Edits = false, false, nil, 0, 0
}

// changes reports whether the reply to the EXEC may change the session.
func (tx *TxState) changes() bool {
	return slices.ContainsFunc(tx.Steps, func(step Step) bool { return step.Apply != nil })
}

// rewrites reports whether the client sees another reply to EXEC than Redis's.
func (tx *TxState) rewrites() bool {
	return slices.ContainsFunc(tx.Steps, func(step Step) bool { return step.Rewrite != nil })
}

// Rewritten is the reply to EXEC as the client sees it.
func Rewritten(reply []byte, steps []Step) []byte {
	if reply[0] != '*' || reply[1] == '-' {
		return reply
	}
	elems := Elements(reply)
	for _, step := range steps {
		if step.Rewrite != nil && step.Index < len(elems) {
			elems[step.Index] = step.Rewrite(elems[step.Index])
		}
	}
	return slices.Concat(reply[:bytes.IndexByte(reply, '\n')+1], bytes.Join(elems, nil))
}

// Elements splits an array reply. Bytes that are no element come last, as one.
func Elements(b []byte) [][]byte {
	var all [][]byte
	var scan resp.Scanner
	for rest := b[bytes.IndexByte(b, '\n')+1:]; len(rest) > 0; {
		n, whole, err := scan.Scan(rest)
		if err != nil || !whole {
			return append(all, rest)
		}
		all = append(all, rest[:n])
		rest = rest[n:]
	}
	return all
}
