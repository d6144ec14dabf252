package transaction

import "slices"

// Refused is a transaction that is not carried out, because there is no connection to Redis for it. The client could not foresee that, and may have
// sent further commands of it already. None of them runs alone: up to EXEC or DISCARD, each gets the same refusal. The zero value is none.
type Refused struct {
	words []byte // the reply to each command; nil: there is none
	piped bool   // the client counts on the transaction: it has not waited for the reply to MULTI, or that was OK, or there is none
}

// Open reports whether there is such a transaction.
func (r *Refused) Open() bool { return r.words != nil }

// Refuse begins one. blind: the client does not learn from the reply to MULTI that it is refused, because that was OK, or there is none.
func (r *Refused) Refuse(words []byte, blind bool) { *r = Refused{slices.Clone(words), blind} }

// Step takes the next command, by its name in lower case, and returns the reply; nil: the command is no part of the transaction.
func (r *Refused) Step(name string) []byte {
	words := r.words
	r.piped = true
	switch name {
	case "multi", "reset": // the client begins anew
		*r = Refused{}
		return nil
	case "quit":
		return nil
	case "exec", "discard":
		*r = Refused{}
	}
	return words
}

// Undecided reports whether all of it is that MULTI has been refused.
func (r *Refused) Undecided() bool { return r.words != nil && !r.piped }

// Leaves says that the reply to MULTI is about to leave; more: the client has sent something behind it. Else it waits for the reply, and learns that
// there is no transaction.
func (r *Refused) Leaves(more bool) {
	if r.piped = r.piped || more; !r.piped {
		*r = Refused{}
	}
}
