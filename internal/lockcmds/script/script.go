// Package script is what the locks are in Redis: the Lua scripts, and for each script a typed call and one decoded
// answer. It does no I/O and keeps no state.
//
// Invariant: a script that is run twice leaves what it leaves when it is run once, but for the calls of a named owner
// that are sent once. A late copy of a call meets the grant of its own owner or none. lib/lock.lua says how.
//
//	Acquire{…}.Call() ──► keys and arguments ──► EVALSHA ──► reply ──► DecodeAcquired ──► Acquired{Granted, Fence, …}
//
// A call can travel on the connection of a session or on the lock engine's own; its answer is decoded alike.
package script

import (
	"bytes"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Script is one of the embedded Lua scripts. It is immutable.
type Script struct {
	name string
	id   int

	// Set by compose.
	text, sha, evalsha string
	keys, args         names
	counter, publish   int // their places in keys.first and args.first; -1: it has none
}

// Name is its name in the files, see compose.go.
func (s *Script) Name() string { return s.name }

// ID is a small number: the place in all.
func (s *Script) ID() int { return s.id }

// Text is the whole script, for EVAL.
func (s *Script) Text() string { return s.composed().text }

// SHA is the name of the script for EVALSHA: 40 lower-case hexadecimal digits.
func (s *Script) SHA() string { return s.composed().sha }

// Evalsha is the command EVALSHA with the SHA, as they stand in a request behind the number of its arguments.
func (s *Script) Evalsha() string { return s.composed().evalsha }

// all is in the order of IDs.
var all []*Script

// The scripts.
var (
	ask           = load("ask")
	acquire       = load("acquire")
	acquireLimit  = load("acquire_limit")
	deepenHold    = load("deepen")
	attempt       = load("attempt")
	leave         = load("leave")
	refresh       = load("refresh")
	look          = load("look")
	removeHead    = load("remove_head")
	release       = load("release")
	handover      = load("handover")
	handoverLimit = load("handover_limit")
	leaseLimit    = load("lease_limit")
	renewLimit    = load("renew_limit")
	proveLimit    = load("prove_limit")
	extend        = load("extend")
	renew         = load("renew")
	info          = load("info")
	head          = load("head")
	places        = load("places")
	force         = load("force")
	tell          = load("tell")
	drop          = load("drop")
	prove         = load("prove")
	bound         = load("bound")
)

func load(name string) *Script {
	s := &Script{name: name, id: len(all)}
	all = append(all, s)
	return s
}

// Error is an error reply of Redis, to be passed on as it is.
type Error string

func (e Error) Error() string { return string(e) }

// ErrorOf is an error reply of Redis.
//
// A script makes the names of other holders' leases itself. While a hash slot is being moved, one of these keys may be
// on the other server already. Then Redis ends the script. The scripts read such keys before they write, so the call
// can be sent again, as one that Redis refuses because of a key that it names.
func ErrorOf(v resp.Value) Error {
	if bytes.Contains(v.Str, []byte("attempted to access a non local key in a cluster node")) {
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	}
	return Error(v.Str)
}

// errStrange is for an answer that no script of ours gives: what was done is not known.
const errStrange = Error("ERR unexpected answer of a lock script")

// Status is what Redis has answered about an owner and a lock.
type Status uint8

// Values of Status.
const (
	Busy       Status = iota // another owner holds the lock, or it is reserved for another waiter
	Held                     // the owner holds the lock: it was granted, or the release or extension has left it
	Freed                    // the last hold was released; the lock may have another owner by now
	NotHolder                // the owner does not hold the lock
	OtherGrant               // the owner holds the lock by another grant than the one that was named
)

// Damage is what a script found wrong with a key beside the lock. Such keys are shared with every user that may lock,
// and with Redisson's clients. A foreign value there does not stop a lock command.
type Damage int64

// Values of Damage.
const (
	NoDamage        Damage = iota
	CounterReplaced        // the fence counter held what cannot have been a fence
	NoQueue                // the key of the fair queue holds something else
)

// PTTLs that stand for something else than a length of time.
const (
	NoTTL = -1 * time.Millisecond // the key has none, or it is not known
	Kept  = -2 * time.Millisecond // the lock is free, but kept for the first in the queue
	// NotFirst: the lock is held and could be held by one more, but others are first.
	NotFirst = -3 * time.Millisecond

	deadlock = -4 * time.Millisecond // of the scripts: Acquired.Deadlock
)

// What the first number of an answer says.
const (
	notNow     = 0  // another owner holds the lock, holds are left, or nothing was to be done
	done       = 1  // acquired, released, extended, ...
	handedOver = 2  // released, and a waiter has the lock; or of drop: done by another session's part
	notHolder  = -1 // the owner has not the hold that is meant
	otherGrant = -2 // it has, but by a grant with another fence
)

// numbers is what most scripts return: integers, the status first; 0 behind the end. The usual end of an acquire or a
// release comes as a bare fence, short for {1, fence, 1}: an array costs Redis a microsecond more.
type numbers struct {
	at  [7]int64
	len int
}

func numbersOf(v resp.Value) (n numbers, _ error) {
	switch {
	case v.IsError():
		return n, ErrorOf(v)
	case v.Kind == resp.Integer:
		return numbers{[7]int64{1, v.Int, 1}, 3}, nil
	case len(v.Elems) == 0 || len(v.Elems) > len(n.at):
		return n, errStrange
	}
	n.len = len(v.Elems)
	for i := range v.Elems {
		n.at[i] = v.Elems[i].Int
	}
	return n, nil
}

// DecodeDone decodes the answer of look, bound, prove, drop and tell: whether the free lock is still kept, the lock has got the
// TTL, the grant is there, the owner had the grant, all was published.
func DecodeDone(v resp.Value) (bool, error) {
	n, err := numbersOf(v)
	return err == nil && n.at[0] >= done, err
}

func (n *numbers) duration(i int) time.Duration { return time.Duration(n.at[i]) * time.Millisecond }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// millis is a length of time for a script, at least 1 unless it is 0.
func millis(d time.Duration) string { return itoa(milliseconds(d)) }

func milliseconds(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
