package pubsub

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Kind is a kind of subscription.
type Kind uint8

// The kinds of subscriptions.
const (
	Channels Kind = iota
	Patterns
	Shards
	kinds
)

// verbs are the words of Redis about each kind.
var verbs = [kinds]struct{ on, off, message string }{
	Channels: {"subscribe", "unsubscribe", "message"},
	Patterns: {"psubscribe", "punsubscribe", "pmessage"},
	Shards:   {"ssubscribe", "sunsubscribe", "smessage"},
}

// Few is the number of subscriptions that fit into the hash tables of a new connection of Redis. Larger tables keep
// their size when the subscriptions have ended.
const Few = 4

// KindOf is the kind of a verb, in lower case. on: it begins subscriptions.
func KindOf(verb string) (k Kind, on, ok bool) {
	for k := range kinds {
		if v := verbs[k]; verb == v.on || verb == v.off {
			return k, verb == v.on, true
		}
	}
	return 0, false, false
}

// A channel is what one can subscribe to.
type channel struct {
	kind Kind
	name string
}

// slot is that of a shard channel. All others belong to the slot of all PUBLISH.
func (ch channel) slot() int {
	if ch.kind == Shards {
		return hashslot.Of([]byte(ch.name))
	}
	return PublishSlot
}

// PublishSlot is the slot to whose server all PUBLISH and the subscriptions to channels belong. With one server for
// both, messages reach each subscriber in order, and PUBLISH counts the subscribers.
const PublishSlot = 0

// eventPrefixes begin the channels of the events of keys.
var eventPrefixes = [...]string{"__keyspace@", "__keyevent@"}

// everywhere reports whether servers tell messages of the channel to their own subscribers only.
func (ch channel) everywhere() bool {
	if ch.kind == Shards {
		return false
	}
	literal := ch.name
	if ch.kind == Patterns {
		if i := strings.IndexAny(literal, `*?[\`); i >= 0 {
			literal = literal[:i]
		}
	}
	for _, p := range eventPrefixes {
		if strings.HasPrefix(literal, p) || ch.kind == Patterns && strings.HasPrefix(p, literal) {
			return true
		}
	}
	return false
}

// isEvent reports whether a message of that source is told by one server only.
func isEvent(source []byte) bool {
	for _, p := range eventPrefixes {
		if bytes.HasPrefix(source, []byte(p)) {
			return true
		}
	}
	return false
}

// kindOfMessage is the kind of a verb that begins a message.
func kindOfMessage(verb string) (k Kind, ok bool) {
	for k := range kinds {
		if verb == verbs[k].message {
			return k, true
		}
	}
	return 0, false
}

// IsMessage reports whether a frame that begins with that word may come without a request.
func IsMessage(verb string) bool {
	_, ok := kindOfMessage(verb)
	return ok || verb == verbs[Shards].off
}

// ReadFrame returns the first three elements of a frame, as far as they are strings; the verb is a short one. The third
// one of a message is not looked at, except for that to a pattern, where it is the channel.
func ReadFrame(frame []byte) (verb, second, third []byte) {
	if frame[0] != '*' && frame[0] != '>' {
		return nil, nil, nil
	}
	verb, rest := bulk(frame[bytes.IndexByte(frame, '\n')+1:])
	if len(verb) > len("punsubscribe") {
		return nil, nil, nil
	}
	second, rest = bulk(rest)
	if string(verb) == verbs[Patterns].message {
		third, _ = bulk(rest)
	}
	return verb, second, third
}

func bulk(b []byte) (text, rest []byte) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[0] != '$' {
		return nil, nil
	}
	n, err := strconv.Atoi(string(b[1 : end-1]))
	if err != nil || n < 0 || end+1+n+2 > len(b) {
		return nil, nil
	}
	return b[end+1 : end+1+n], b[end+1+n+2:]
}

// appendConfirmation appends what Redis says when a subscription begins or ends; name nil: there was none to end.
func appendConfirmation(dst []byte, proto int, verb string, name []byte, count int) []byte {
	head := byte('*')
	if proto == 3 {
		head = '>'
	}
	dst = resp.AppendHeader(dst, head, 3)
	dst = resp.AppendBulk(dst, []byte(verb))
	if name == nil {
		dst = resp.AppendNull(dst, proto)
	} else {
		dst = resp.AppendBulk(dst, name)
	}
	return resp.AppendInteger(dst, count)
}
