package session

import "slices"

// aftermath is what is not carried out because there is no connection to Redis for the command in front of it. The
// client could not foresee that, and may have sent the next commands already. The zero value is nothing.
//
// Of a transaction none of the commands runs alone: up to EXEC or DISCARD, each gets the same refusal as MULTI. Behind
// SELECT and WATCH, each command gets it that the client has sent before it can have read the refusal: in another
// database, or without the watch, it would do something else.
type aftermath struct {
	of     aftermathOf
	words  []byte // the reply to each command
	unseen bool   // the client goes on without having read a refusal, or gets none
}

// aftermathOf is the refused command whose aftermath it is.
type aftermathOf uint8

const (
	ofNothing aftermathOf = iota
	ofMulti
	ofSelect
	ofWatch
)

// open reports whether there is anything.
func (r *aftermath) open() bool { return r.of != ofNothing }

// refuse begins a transaction. unseen: the client does not learn from the reply to MULTI that it is refused, because
// that was OK, or there is none.
func (r *aftermath) refuse(words []byte, unseen bool) {
	*r = aftermath{ofMulti, slices.Clone(words), unseen}
}

// behind notes the refusal of a command, by its name in lower case, if others depend on it. unseen: the client gets no
// reply.
func (r *aftermath) behind(name string, words []byte, unseen bool) {
	switch name {
	case "multi":
		r.refuse(words, unseen)
	case "select":
		*r = aftermath{ofSelect, slices.Clone(words), unseen}
	case "watch":
		*r = aftermath{ofWatch, slices.Clone(words), unseen}
	}
}

// ending are the commands by which the client begins anew, besides RESET.
var ending = [...]string{ofMulti: "multi", ofSelect: "select", ofWatch: "unwatch"}

// step takes the next command, by its name in lower case, and returns the reply; nil: the command is not concerned.
// muted: the client gets no reply.
func (r *aftermath) step(name string, muted bool) []byte {
	words := r.words
	switch {
	case name == "quit":
		return nil
	case name == "reset", name == ending[r.of]:
		*r = aftermath{}
		return nil
	case r.of == ofMulti:
		r.unseen = true
		if name == "exec" || name == "discard" {
			*r = aftermath{}
		}
	case name == "multi":
		r.refuse(words, muted)
	case name == "client": // may say that the client wants replies
		return nil
	default:
		r.unseen = r.unseen && muted
	}
	return words
}

// undecided reports whether it depends on the client: it may have waited for the refusal.
func (r *aftermath) undecided() bool { return r.open() && !(r.of == ofMulti && r.unseen) }

// leaves says that the replies so far are about to leave; more: the client has sent something behind its commands. Else
// it waits for the replies, and learns of the refusal. A client that has once gone on within a transaction has not
// waited for the reply to MULTI.
func (r *aftermath) leaves(more bool) {
	switch {
	case !more && !r.unseen:
		*r = aftermath{}
	case r.of == ofMulti:
		r.unseen = true
	}
}
