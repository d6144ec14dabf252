package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/pubsub"
	"github.com/lockproxy/lockproxy/internal/resp"
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
func (p *subscriptions) grown() bool { return p.most > pubsub.Few }

// subscribed reports whether there is any.
func (p *subscriptions) subscribed() bool { return p.Channels+p.Patterns+p.Shards > 0 }

// countOf is the number of subscriptions of the kind that a verb ends.
func (p *subscriptions) countOf(verb string) int64 {
	switch k, _, _ := pubsub.KindOf(verb); k {
	case pubsub.Patterns:
		return p.Patterns
	case pubsub.Shards:
		return p.Shards
	default:
		return p.Channels
	}
}

// confirm takes the number in a confirmation: channels and patterns together, or shard channels.
func (p *subscriptions) confirm(verb string, n int64) {
	k, _, ok := pubsub.KindOf(verb)
	if ok {
		p.most = max(p.most, n)
	}
	switch {
	case !ok:
	case k == pubsub.Channels:
		p.Channels = n - p.Patterns
	case k == pubsub.Patterns:
		p.Patterns = n - p.Channels
	default:
		p.Shards = n
	}
}

// subscriberRefusal is the reply to a command that a subscriber may not send in RESP2.
func subscriberRefusal(verb string) []byte {
	return resp.AppendError(nil, resp.Err, "Can't execute '"+verb+
		"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}

// pong is the reply to a PING of a subscriber in RESP2.
func pong(text [][]byte) []byte {
	var word []byte
	if len(text) > 0 {
		word = text[0]
	}
	return resp.AppendCommand(nil, []byte("pong"), word)
}

// readFrame reads the verb of a frame, and its last element if that is an integer.
func readFrame(b []byte) (verb string, last int64) {
	first, _, _ := pubsub.ReadFrame(b)
	if first == nil {
		return "", 0
	}
	last, _ = strconv.ParseInt(string(bytes.TrimRight(b[bytes.LastIndexByte(b, ':')+1:], "\r\n")), 10, 64)
	return string(first), last
}
