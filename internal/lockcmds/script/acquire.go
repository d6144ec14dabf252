package script

import (
	"time"

	"lockproxy/internal/resp"
)

// Acquire asks for a lock without a place in the queue.
type Acquire struct {
	Key, Owner string
	Lease      time.Duration // > 0
	Shared     bool          // others may wait for the same owner; they are told of a first hold
}

// Call is the call of acquire.lua.
func (a Acquire) Call() Call {
	c := Call{acquire, []string{a.Key, FenceKey, ChannelOf(a.Key)}, []string{a.Owner, millis(a.Lease)}}
	if a.Shared {
		c.Args = append(c.Args, publish, NamesOf(a.Key).NameChannel(a.Owner))
	}
	return c
}

// Fair asks for a lock in its turn.
type Fair struct {
	Acquire
	Wait    time.Duration // what deadlines in the queue are counted in
	Enqueue bool          // take a place in the queue if the lock is not acquired
}

// Call is the call of fair.lua.
func (a Fair) Call() Call {
	n := NamesOf(a.Key)
	return Call{
		fair,
		[]string{n.Lock, n.Queue, n.Deadlines, n.Fence, n.Channel},
		[]string{a.Owner, millis(a.Lease), millis(a.Wait), flag(a.Enqueue), publish, n.PlaceOf(a.Owner), flag(a.Shared)},
	}
}

// Crowd asks for a lock for the first of the plain waiters of a proxy.
type Crowd struct {
	Acquire
	Wait    time.Duration // what deadlines in the queue are counted in
	Crowd   string        // the name under which the plain waiters of the proxy stand in queues
	Stays   bool          // the place stays in the queue if the lock is acquired
	Enqueue bool          // take a place if the lock is not acquired, also if nobody else has one
}

// Call is the call of crowd.lua.
func (a Crowd) Call() Call {
	n := NamesOf(a.Key)
	tell := ""
	if a.Shared {
		tell = n.NameChannel(a.Owner)
	}
	return Call{
		crowd,
		[]string{n.Lock, n.Queue, n.Deadlines, n.Fence, n.Channel},
		[]string{a.Owner, millis(a.Lease), millis(a.Wait), n.PlaceOf(a.Crowd), flag(a.Stays), flag(a.Enqueue), publish, tell},
	}
}

// Acquired is the answer to Acquire, Fair and Crowd, and what a Released with a hand-over means to a waiter.
type Acquired struct {
	Granted      bool
	Fence, Holds int64         // if granted
	PTTL         time.Duration // if not: what is left to the holder, NoTTL or Kept
	Damage       Damage
	Placed       bool  // Place is known: the call was Crowd or a hand-over
	Place        int64 // of the plain waiters, as in package turns
}

// DecodeAcquired decodes the answer of acquire.lua and fair.lua.
func DecodeAcquired(v resp.Value) (Acquired, error) {
	n, err := numbersOf(v)
	if err != nil || n[0] != 1 {
		return Acquired{PTTL: n.duration(1)}, err
	}
	return Acquired{Granted: true, Fence: n.at(1), Holds: n.at(2), Damage: Damage(n.at(3))}, nil
}

// DecodeCrowd decodes the answer of crowd.lua.
func DecodeCrowd(v resp.Value) (Acquired, error) {
	n, err := numbersOf(v)
	if err != nil || n[0] != 1 {
		return Acquired{PTTL: n.duration(1), Placed: err == nil, Place: n.at(2)}, err
	}
	return Acquired{Granted: true, Fence: n.at(1), Holds: n.at(2), Damage: Damage(n.at(3)), Placed: true, Place: n.at(4)}, nil
}
