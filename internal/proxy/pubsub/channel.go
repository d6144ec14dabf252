package pubsub

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// kind is a kind of subscription.
type kind uint8

const (
	channels kind = iota
	patterns
	shards
	kinds
)

// verbs are the words of Redis about each kind.
var verbs = [kinds]struct{ on, off, message string }{
	channels: {"subscribe", "unsubscribe", "message"},
	patterns: {"psubscribe", "punsubscribe", "pmessage"},
	shards:   {"ssubscribe", "sunsubscribe", "smessage"},
}

// kindOf is the kind of a verb, in lower case. on: it begins subscriptions.
func kindOf(verb string) (k kind, on, ok bool) {
	for k := range kinds {
		if v := verbs[k]; verb == v.on || verb == v.off {
			return k, verb == v.on, true
		}
	}
	return 0, false, false
}

// A channel is what one can subscribe to.
type channel struct {
	kind kind
	name string
}

// slot is that of a shard channel. All others belong to the slot of all PUBLISH.
func (ch channel) slot() int {
	if ch.kind == shards {
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
	if ch.kind == shards {
		return false
	}
	literal := ch.name
	if ch.kind == patterns {
		if i := strings.IndexAny(literal, `*?[\`); i >= 0 {
			literal = literal[:i]
		}
	}
	for _, p := range eventPrefixes {
		if strings.HasPrefix(literal, p) || ch.kind == patterns && strings.HasPrefix(p, literal) {
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

// words are the first three elements of a frame, as far as they are strings. The third one of a message is not looked
// at, except for that to a pattern, where it is the channel.
func words(frame []byte) (verb, second, third []byte) {
	if len(frame) == 0 || frame[0] != '*' && frame[0] != '>' {
		return nil, nil, nil
	}
	rest := frame[bytes.IndexByte(frame, '\n')+1:]
	verb, rest = bulk(rest)
	second, rest = bulk(rest)
	if string(verb) == verbs[patterns].message {
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
