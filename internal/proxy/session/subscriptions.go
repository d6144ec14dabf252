package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file reads the frames of a connection in pub/sub mode, assigns them to the commands that they answer, and counts
// subscriptions. It does no I/O.

// subscriptions counts the subscriptions of one connection. Each confirmation of Redis has their number.
type subscriptions struct {
	Channels, Patterns, Shards int64
}

// subscribed reports whether there is any.
func (p *subscriptions) subscribed() bool { return p.Channels+p.Patterns+p.Shards > 0 }

// countOf is the number of subscriptions of the kind that a verb ends.
func (p *subscriptions) countOf(verb string) int64 {
	switch verb {
	case "unsubscribe":
		return p.Channels
	case "punsubscribe":
		return p.Patterns
	case "sunsubscribe":
		return p.Shards
	}
	return 0
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
	}
}

// isMessage reports whether a frame that begins with that word may come without a request.
func isMessage(verb string) bool {
	switch verb {
	case "message", "pmessage", "smessage", "sunsubscribe":
		return true
	}
	return false
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

// ReadPubSubFrame reads the first element of an array or push if it is a short string, and its last element if that is
// an integer.
func ReadPubSubFrame(b []byte) (kind string, last int64) {
	if b[0] != '*' && b[0] != '>' {
		return "", 0
	}
	i := bytes.IndexByte(b, '\n') + 1
	if i >= len(b) || b[i] != '$' {
		return "", 0
	}
	start := i + bytes.IndexByte(b[i:], '\n') + 1
	n, err := strconv.Atoi(string(b[i+1 : max(i+1, start-2)]))
	if err != nil || n < 0 || n > len("punsubscribe") || start+n > len(b) {
		return "", 0
	}
	if colon := bytes.LastIndexByte(b, ':'); colon > start {
		last, _ = strconv.ParseInt(string(bytes.TrimRight(b[colon+1:], "\r\n")), 10, 64)
	}
	return string(b[start : start+n]), last
}
