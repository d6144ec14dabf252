package session

import "slices"

// aftermath is what is not carried out because there is no connection to Redis for the command in front of it. The client
// could not foresee that, and may have sent the next commands already. The zero value is nothing.
//
// Of a transaction none of the commands runs alone: up to EXEC or DISCARD, each gets the same refusal as MULTI. Behind
// SELECT and WATCH, each command gets it that the client has sent before it can have read the refusal: in another
// database, or without the watch, it would do something else.
type aftermath struct {
	words []byte // the reply to each command; nil: there is none
	piped bool   // of a transaction: the client has not waited for the reply to MULTI, or that was OK, or there is none
	until string // of SELECT and WATCH: the command that ends it; "": it is a transaction
	blind bool   // of SELECT and WATCH: the client has got no reply yet
}

// open reports whether there is anything.
func (r *aftermath) open() bool { return r.words != nil }

// refuse begins a transaction. blind: the client does not learn from the reply to MULTI that it is refused, because
// that was OK, or there is none.
func (r *aftermath) refuse(words []byte, blind bool) {
	*r = aftermath{words: slices.Clone(words), piped: blind}
}

// behind notes the refusal of a command, by its name in lower case, if others depend on it. blind: the client gets no
// reply.
func (r *aftermath) behind(name string, words []byte, blind bool) {
	switch name {
	case "multi":
		r.refuse(words, blind)
	case "select":
		*r = aftermath{words: slices.Clone(words), until: "select", blind: blind}
	case "watch":
		*r = aftermath{words: slices.Clone(words), until: "unwatch", blind: blind}
	}
}

// step takes the next command, by its name in lower case, and returns the reply; nil: the command is not concerned.
// muted: the client gets no reply.
func (r *aftermath) step(name string, muted bool) []byte {
	words := r.words
	switch {
	case name == "quit":
		return nil
	case name == "reset", r.until == "" && name == "multi", name == r.until: // the client begins anew
		*r = aftermath{}
		return nil
	case r.until == "":
		r.piped = true
		if name == "exec" || name == "discard" {
			*r = aftermath{}
		}
	case name == "multi":
		r.refuse(words, muted)
	case name == "client": // may say that the client wants replies
		return nil
	default:
		r.blind = r.blind && muted
	}
	return words
}

// undecided reports whether it depends on the client: it may have waited for the refusal.
func (r *aftermath) undecided() bool { return r.words != nil && !r.piped }

// leaves says that the replies so far are about to leave; more: the client has sent something behind its commands. Else
// it waits for the replies, and learns of the refusal.
func (r *aftermath) leaves(more bool) {
	if r.until != "" {
		more = more || r.blind
	} else {
		r.piped = r.piped || more
	}
	if !more && !r.piped {
		*r = aftermath{}
	}
}
