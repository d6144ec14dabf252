package script

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Leave takes places out of the queue of a lock.
type Leave struct {
	Key    string
	Places []string
}

// Call is the call of leave.
func (l Leave) Call() Call {
	c := leave.of(l.Key)
	c.Args = append(c.Args, l.Places...)
	return c
}

// Refresh keeps the deadlines of live waiters ahead of the clock.
type Refresh struct {
	Key    string
	Wait   time.Duration // the unit of deadlines in the queue
	Places []string      // a thousand at most
}

// Call is the call of refresh.
func (r Refresh) Call() Call {
	c := refresh.of(r.Key, "wait", millis(r.Wait))
	c.Args = append(c.Args, r.Places...)
	return c
}

// DecodeCount decodes the answer of leave and refresh: how many of the places were in the queue.
func DecodeCount(v resp.Value) (int, error) {
	n, err := numbersOf(v)
	return int(n.at[0]), err
}

// ReadFirst reads a message by which a waiter learns that its place is the first in the queue: tell_head in
// lib/queue.lua. It returns the lease of the holder. Redisson's messages, and those after which a waiter asks, are 0 and
// 1.
func ReadFirst(text string) (lease time.Duration, ok bool) {
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(ms) * time.Millisecond, err == nil && ms > 1 && ms < 1e12
}

// Head asks for the first place in the queue of a lock.
type Head struct{ Key string }

// Call is the call of head.
func (h Head) Call() Call { return head.of(h.Key) }

// DecodeHead decodes the answer of head; empty: the queue is empty.
func DecodeHead(v resp.Value) (place string, err error) {
	if v.IsError() {
		return "", ErrorOf(v)
	}
	return string(v.Str), nil
}

// Places asks for the first places in the queue of a lock.
type Places struct {
	Key  string
	Most int
}

// Call is the call of places.
func (p Places) Call() Call { return places.of(p.Key, "most", itoa(int64(p.Most))) }

// DecodePlaces decodes the answer of places.
func DecodePlaces(v resp.Value) (all []string, err error) {
	if v.IsError() {
		return nil, ErrorOf(v)
	}
	for _, place := range v.Elems {
		all = append(all, string(place.Str))
	}
	return all, nil
}

// Look looks after a free lock that was kept for a waiter.
type Look struct{ Key string }

// Call is the call of look.
func (l Look) Call() Call { return look.of(l.Key) }

// RemoveHead removes the first place in the queue of a lock if its waiter is stale.
type RemoveHead struct {
	Key, Place string
	Force      bool // even if it has a subscriber: it was woken often enough
}

// Call is the call of remove_head.
func (d RemoveHead) Call() Call {
	return removeHead.of(d.Key, "place", d.Place, "force", flag(d.Force))
}

// HeadRemoved is the answer to RemoveHead.
type HeadRemoved struct {
	Removed   bool
	Receivers int64 // how many listen for the place
}

// DecodeHeadRemoved decodes the answer of remove_head.
func DecodeHeadRemoved(v resp.Value) (HeadRemoved, error) {
	n, err := numbersOf(v)
	return HeadRemoved{n.at[0] == done, n.at[1]}, err
}
