package script

import (
	"bytes"
	"fmt"
	"strings"
)

// This file has the Redis keys and channels of a lock. It does no I/O and keeps no state.

// Fence counts the fences of all locks of one server. In a cluster it is the beginning of a name: see FenceOf.
const Fence = "lockproxy:fence"

// Beginnings of names.
const (
	channelPrefix   = "redisson_lock__channel"
	queuePrefix     = "redisson_lock_queue"
	deadlinesPrefix = "redisson_lock_timeout"
	rwlockPrefix    = "redisson_rwlock"
	semaphorePrefix = "redisson_sc"
)

// timeoutSuffix ends the names of leases of shared holds, but for a number.
const timeoutSuffix = ":rwlock_timeout:"

// Channel is the base channel of a lock: a release is told there.
func Channel(key string) string { return tagged(channelPrefix, key) }

// timeoutOf is the lease of an owner that holds a lock shared, as Redisson's readers have it.
func timeoutOf(key, owner string) string {
	left, right := "{", "}:"
	if strings.Contains(key, "{") {
		left, right = "", ":"
	}
	return left + key + right + nameOf(key, owner) + timeoutSuffix + "1"
}

// nameOf is the name of an owner that holds a lock shared in the hash of the lock; see lib/shared.lua.
func nameOf(key, owner string) string {
	switch {
	case isBraced(key):
		return owner + "{}"
	case isNumber(owner):
		return fmt.Sprintf("%%%02X", owner[0]) + owner[1:]
	case isRedissons(owner), isOwned(owner):
		return owner
	}
	return escapes.Replace(owner)
}

// escapes are those of names.
var escapes = strings.NewReplacer("%", "%25", ":", "%3A")

// isRedissons reports whether a name has the form of Redisson's owners: a UUID, a colon, and a number.
func isRedissons(owner string) bool {
	return Process(owner) != "" && isNumber(owner[uuidLength+1:]) &&
		strings.Trim(owner[:uuidLength], "0123456789abcdefABCDEF-") == ""
}

func isNumber(text string) bool { return isDigits(strings.TrimPrefix(text, "-")) }

// IsDerived reports whether a key may be one that the scripts write for another lock, whatever it holds: the lease of a
// shared hold, or the place for which a free lock is kept. Other keys of locks have types of their own.
func IsDerived(key []byte) bool {
	if bytes.HasPrefix(key, []byte(channelPrefix+":")) {
		return true
	}
	nth := bytes.TrimRight(key, "0123456789")
	return len(nth) < len(key) && bytes.HasSuffix(nth, []byte(timeoutSuffix))
}

// Queue is the fair queue of a lock.
func Queue(key string) string { return tagged(queuePrefix, key) }

// ForcedChannel is the channel on which proxies are told of grants that were ended by force; see Forced.Message. All
// locks share it, so in a cluster it is no shard channel.
const ForcedChannel = "lockproxy:forced"

// Lost is the channel on which the loss of a lock is told.
func Lost(key string) string { return tagged("lockproxy:lost", key) }

// NameChannel is the channel on which the waiters of an owner are woken by its name.
func NameChannel(key, owner string) string { return Channel(key) + ":" + PlaceOf(key, owner) }

// PlaceOf is the name under which an owner stands in the fair queue of a lock. Redisson's rule gives "a" and "{a}" one
// queue, so the places of waiters for "{a}" are marked; see waits_for in lib/queue.lua. "{}" has no such other lock.
func PlaceOf(key, owner string) string {
	if isBraced(key) {
		return owner + "{}"
	}
	return owner
}

// isBraced reports whether a lock is "{a}", which has the names of "a" by Redisson's rule.
func isBraced(key string) bool {
	inner, ok := strings.CutPrefix(key, "{")
	return ok && len(inner) > 1 && strings.HasSuffix(inner, "}") && !strings.Contains(inner, "{")
}

func tagged(prefix, key string) string {
	var name [128]byte
	return string(appendTagged(name[:0], prefix, key))
}

// AppendChannel appends the base channel of a lock.
func AppendChannel(dst []byte, key string) []byte { return appendTagged(dst, channelPrefix, key) }

// AppendQueue appends the fair queue of a lock.
func AppendQueue(dst []byte, key string) []byte { return appendTagged(dst, queuePrefix, key) }

// appendTagged is Redisson's rule: a name with an opening brace anywhere is taken to have its own hash tag.
func appendTagged(dst []byte, prefix, key string) []byte {
	left, right := ":{", "}"
	if strings.Contains(key, "{") {
		left, right = ":", ""
	}
	dst = append(append(dst, prefix...), left...)
	return append(append(dst, key...), right...)
}

// appendKey appends a key of a lock, by its name in the scripts; see lib/names.lua.
func appendKey(dst []byte, name, lock string) []byte {
	switch name {
	case "channel":
		return AppendChannel(dst, lock)
	case "queue":
		return AppendQueue(dst, lock)
	case "deadlines":
		return appendTagged(dst, deadlinesPrefix, lock)
	}
	if strings.Contains(lock, "{") {
		dst = append(dst, lock...)
	} else {
		dst = append(append(append(dst, '{'), lock...), '}')
	}
	own := ""
	if isBraced(lock) { // by Redisson's rule "a" has the same base
		own = "{}"
	}
	switch name {
	case "timeouts":
		return append(dst, ":timeout"...)
	case "permits", "owners":
		return append(append(append(dst, ':'), name...), own...)
	}
	panic("BUG: no script key " + name)
}
