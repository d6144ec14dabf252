package lockcmds

import "strings"

// names are the Redis keys and channels of one lock. The forms are Redisson's, to the letter, except fence, which is
// ours.
type names struct {
	lock      string // the hash itself, at the key the client named
	channel   string // released: "0"; the channel of a fair waiter is channel:owner
	queue     string // list of fair waiters
	deadlines string // zset of fair waiters
	fence     string // fence counter, shared by all locks
}

// fenceKey counts the fences of all locks.
const fenceKey = "lockproxy:fence"

// publish is the command by which the scripts wake waiters.
const publish = "PUBLISH"

// namesOf builds the names for key.
func namesOf(key string) names {
	return names{
		lock:      key,
		channel:   channelOf(key),
		queue:     queueOf(key),
		deadlines: deadlinesOf(key),
		fence:     fenceKey,
	}
}

func channelOf(key string) string { return tagged("redisson_lock__channel", key) }

func queueOf(key string) string { return tagged("redisson_lock_queue", key) }

func deadlinesOf(key string) string { return tagged("redisson_lock_timeout", key) }

// lostOf is the channel on which the loss of a lock is told.
func lostOf(key string) string { return tagged("lockproxy:lost", key) }

// nameChannel is the channel on which those who wait for an owner are woken by its name.
func (n names) nameChannel(owner string) string { return n.channel + ":" + n.placeOf(owner) }

// placeOf is the name under which an owner stands in the fair queue. Redisson's rule gives "a" and "{a}" one queue, so the places of
// those who wait for "{a}" are marked; see scripts/lib/head.lua.
func (n names) placeOf(owner string) string {
	if inner, ok := strings.CutPrefix(n.lock, "{"); ok && strings.HasSuffix(inner, "}") && !strings.Contains(inner, "{") {
		return owner + "{}"
	}
	return owner
}

// tagged is Redisson's rule: a name with an opening brace anywhere is taken to have its own hash tag.
func tagged(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}
