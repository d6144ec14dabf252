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

// fairChannel is the channel on which one fair waiter is woken.
func (n names) fairChannel(owner string) string { return n.channel + ":" + owner }

// tagged is Redisson's rule: a name with an opening brace anywhere is taken to have its own hash tag.
func tagged(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}
