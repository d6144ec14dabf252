package lockcmds

import "strings"

// names are the Redis keys and channels of one lock. The forms are Redisson's, to the letter, except fence, which is
// ours.
type names struct {
	lock      string // the hash itself, at the key the client named
	channel   string // released: "0"; the channel of a fair waiter is channel:owner
	queue     string // list of fair waiters
	deadlines string // zset of fair waiters
	fence     string // fence counter, shared by all locks of a hash slot
}

// namesOf builds the names for key. In a cluster the fence counter must share the slot of the lock and is then kept
// per hash tag.
func namesOf(key string, cluster bool) names {
	return names{
		lock:      key,
		channel:   channelOf(key),
		queue:     queueOf(key),
		deadlines: deadlinesOf(key),
		fence:     fenceOf(key, cluster),
	}
}

func channelOf(key string) string { return tagged("redisson_lock__channel", key) }

func queueOf(key string) string { return tagged("redisson_lock_queue", key) }

func deadlinesOf(key string) string { return tagged("redisson_lock_timeout", key) }

// lostOf is the channel on which the loss of a lock is told.
func lostOf(key string) string { return tagged("lockproxy:lost", key) }

func fenceOf(key string, cluster bool) string {
	if cluster {
		return "lockproxy:fence:{" + tagOf(key) + "}"
	}
	return "lockproxy:fence"
}

// fairChannel is the channel on which one fair waiter is woken.
func (n names) fairChannel(owner string) string { return n.channel + ":" + owner }

// tagged is Redisson's rule: a name with an opening brace anywhere is taken to have its own hash tag.
func tagged(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// tagOf is the part of a key that Redis Cluster hashes: what is between the first brace and the next closing one, or
// the whole key.
func tagOf(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// oneSlot reports whether the lock and the names derived from it share a hash slot. "a}b" does not: its channel
// hashes "a", the key hashes whole.
func oneSlot(key string) bool {
	return tagOf(tagged("p", key)) == tagOf(key)
}
