package script

import "strings"

// Names are the Redis keys and channels of one lock. The forms are Redisson's, to the letter, except Fence, which is
// ours.
type Names struct {
	Lock      string // the hash itself, at the key the client named
	Channel   string // released: "0"; the channel of a fair waiter is channel:owner
	Queue     string // list of fair waiters
	Deadlines string // zset of fair waiters
	Fence     string // fence counter, shared by all locks; in a cluster see Call.On
}

// FenceKey counts the fences of all locks of one server. In a cluster it is the beginning of a name: see FenceKeyOf.
const FenceKey = "lockproxy:fence"

// Beginnings of names.
const (
	channelPrefix = "redisson_lock__channel"
	queuePrefix   = "redisson_lock_queue"
)

// publish is the command by which the scripts wake waiters, spublish the one in a cluster whose clients listen by SSUBSCRIBE.
const (
	publish  = "PUBLISH"
	spublish = "SPUBLISH"
)

// NamesOf builds the names for key.
func NamesOf(key string) Names {
	return Names{
		Lock:      key,
		Channel:   ChannelOf(key),
		Queue:     QueueOf(key),
		Deadlines: DeadlinesOf(key),
		Fence:     FenceKey,
	}
}

// ChannelOf is the base channel of a lock.
func ChannelOf(key string) string { return tagged(channelPrefix, key) }

// QueueOf is the fair queue of a lock.
func QueueOf(key string) string { return tagged(queuePrefix, key) }

// DeadlinesOf is the deadlines of the places in that queue.
func DeadlinesOf(key string) string { return tagged("redisson_lock_timeout", key) }

// LostOf is the channel on which the loss of a lock is told.
func LostOf(key string) string { return tagged("lockproxy:lost", key) }

// NameChannel is the channel on which those who wait for an owner are woken by its name.
func (n Names) NameChannel(owner string) string { return n.Channel + ":" + n.PlaceOf(owner) }

// PlaceOf is the name under which an owner stands in the fair queue. Redisson's rule gives "a" and "{a}" one queue, so the places of
// those who wait for "{a}" are marked; see lib/head.lua.
func (n Names) PlaceOf(owner string) string {
	if inner, ok := strings.CutPrefix(n.Lock, "{"); ok && strings.HasSuffix(inner, "}") && !strings.Contains(inner, "{") {
		return owner + "{}"
	}
	return owner
}

func tagged(prefix, key string) string {
	var name [128]byte
	return string(appendTagged(name[:0], prefix, key))
}

// appendTagged is Redisson's rule: a name with an opening brace anywhere is taken to have its own hash tag.
func appendTagged(dst []byte, prefix, key string) []byte {
	left, right := ":{", "}"
	if strings.Contains(key, "{") {
		left, right = ":", ""
	}
	dst = append(append(dst, prefix...), left...)
	return append(append(dst, key...), right...)
}
