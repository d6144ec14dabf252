package session

import (
	"bytes"
	"strconv"
)

// This file reads the frames of a connection in pub/sub mode, assigns them to the commands that they answer, and counts
// subscriptions. It does no I/O.

// subscriptions counts the subscriptions of one connection. Each confirmation of Redis has their number.
type subscriptions struct {
	Channels, Patterns, Shards int64
	most                       int64 // the greatest number in a confirmation
}

// grown reports whether Redis may have made the connection's hash tables of them larger than they are at first. That
// shows in the order of the replies to an UNSUBSCRIBE of everything.
func (p *subscriptions) grown() bool { return p.most > few }

// few is the number of subscriptions that fit into the hash tables of a new connection of Redis.
const few = 4

// subscribed reports whether there is any.
func (p *subscriptions) subscribed() bool { return p.Channels+p.Patterns+p.Shards > 0 }

// countOf is the number of subscriptions of the kind that a verb ends.
func (p *subscriptions) countOf(verb string) int64 {
	switch verb {
	case "punsubscribe":
		return p.Patterns
	case "sunsubscribe":
		return p.Shards
	default:
		return p.Channels
	}
}

// confirm takes the number in a confirmation: channels and patterns together, or shard channels.
func (p *subscriptions) confirm(verb string, n int64) {
	switch verb {
	case "subscribe", "unsubscribe":
		p.Channels = n - p.Patterns
	case "psubscribe", "punsubscribe":
		p.Patterns = n - p.Channels
	case "ssubscribe", "sunsubscribe":
		p.Shards = n
	default:
		return
	}
	p.most = max(p.most, n)
}

// isMessage reports whether a frame that begins with that word may come without a command.
func isMessage(verb string) bool {
	switch verb {
	case "message", "pmessage", "smessage", "sunsubscribe": // the last one when a slot moves away
		return true
	}
	return false
}

// readFrame reads the verb of a frame, and its last element if that is an integer.
func readFrame(b []byte) (verb string, last int64) {
	if b[0] != '*' && b[0] != '>' {
		return "", 0
	}
	b = b[bytes.IndexByte(b, '\n')+1:]
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[0] != '$' {
		return "", 0
	}
	n, err := strconv.Atoi(string(b[1 : end-1]))
	if err != nil || n < 0 || n > len("punsubscribe") || end+1+n > len(b) {
		return "", 0
	}
	last, _ = strconv.ParseInt(string(bytes.TrimRight(b[bytes.LastIndexByte(b, ':')+1:], "\r\n")), 10, 64)
	return string(b[end+1 : end+1+n]), last
}
