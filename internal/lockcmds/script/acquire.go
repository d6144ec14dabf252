package script

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Part is one session's part in a lock, as a call of that session writes it.
type Part struct {
	Owner string
	// Session is the session's name, if Owner was named by OWNER: other sessions may hold the lock for it. Empty: none may,
	// and no other acquire has had that owner.
	Session string
	// Name is that of the acquire, for a named owner.
	Name string
	// By is the name of the acquire by which the session has got its part, of a named owner; empty: it has none, or it does
	// not matter.
	By     string
	Fence  int64 // of the grant that the session has or means; 0: none, or any
	Holds  int64 // of the owner's only session, after this call. The holds of a named owner are raised and lowered by one
	Shared bool  // it is known to be a shared hold: its lease is among the keys
}

// field is by what the scripts know the session; empty: it is its owner's only one.
func (p Part) field() string {
	switch {
	case p.By != "":
		return p.By
	case p.Session == "":
		return ""
	}
	return "{" + p.Session + "}"
}

// Acquire asks for a lock without a place in the queue.
type Acquire struct {
	Key string
	Part
	Lease time.Duration // > 0
	Limit int           // how many may hold the lock; 0: no permit is asked for
}

// named reports whether others may wait for the same owner. They are told of a first hold.
func (a Acquire) named() bool { return a.Session != "" }

// Call is the call of acquire.
func (a Acquire) Call() Call {
	if !a.named() {
		return acquire.of(a.Key, "owner", a.Owner, "lease", millis(a.Lease))
	}
	return acquire.of(a.Key, "owner", a.Owner, "lease", millis(a.Lease),
		"name", a.Name, "field", a.field(), "tell", a.tell())
}

// tell is the channel on which other waiters of the owner are told of a first hold; empty: there are none.
func (a Acquire) tell() string {
	if !a.named() {
		return ""
	}
	return NameChannel(a.Key, a.Owner)
}

// Deepen acquires a lock again that the only session of an owner holds by the grant of that fence. It never grants.
type Deepen struct{ Acquire }

// Call is the call of deepen.
func (a Deepen) Call() Call {
	return deepenHold.ofHold(a.Key, a.timeout(a.Key),
		"owner", a.Owner, "fence", itoa(a.Fence), "holds", itoa(a.Holds), "lease", millis(a.Lease))
}

// Attempt asks for a lock at a place in the queue, or for a shared hold or a permit.
type Attempt struct {
	Acquire
	Wait    time.Duration // what deadlines in the queue are counted in
	Way     Way
	Place   string // the waiter's own, or that of the plain waiters; empty: it asks without one
	Stays   bool   // the place of the plain waiters stays in the queue if the lock is acquired
	Enqueue bool   // take a place if the lock is not acquired. Plain waiters take one anyway if others have one
}

// Way says whose place in the queue an Attempt asks at.
type Way string

// The ways.
const (
	AtNoPlace    Way = ""
	AtOwnPlace   Way = "fair"
	AtCrowdPlace Way = "crowd"
)

// Call is the call of attempt, for an exclusive hold.
func (a Attempt) Call() Call { return a.attempt("") }

// SharedCall is the call of attempt, for a shared hold.
func (a Attempt) SharedCall() Call { return a.attempt(timeoutOf(a.Key, a.Owner)) }

func (a Attempt) attempt(timeout string) Call {
	pairs := []string{"owner", a.Owner, "lease", millis(a.Lease)}
	if a.named() || a.Way != AtNoPlace { // else the rest would say nothing
		pairs = append(pairs, "name", a.Name, "field", a.field(), "tell", a.tell())
	}
	if a.Way != AtNoPlace {
		pairs = append(pairs,
			"place", a.Place, "way", string(a.Way), "stays", flag(a.Stays), "enqueue", flag(a.Enqueue),
			"wait", millis(a.Wait))
	}
	return attempt.ofHold(a.Key, timeout, pairs...)
}

// Form is in which form a lock is held, as far as it says where a release is told.
type Form int64

// Values of Form.
const (
	Ours      Form = iota // each release is told on the lock's channel
	RWLock                // one of Redisson's read and write locks may be told elsewhere
	Semaphore             // one of its permit semaphore may
)

// Channel is the other channel; empty: there is none.
func (f Form) Channel(key string) string {
	switch f {
	case RWLock:
		return tagged(rwlockPrefix, key)
	case Semaphore:
		return tagged(semaphorePrefix, key)
	case Ours:
	}
	return ""
}

// Acquired is the answer to Acquire, Deepen and Attempt, and what a Released with a hand-over means to a
// waiter.
type Acquired struct {
	Granted      bool
	Fence, Holds int64 // if granted: of the owner
	More         bool  // if granted: another permit is left
	// If not: the rest of the holder's lease, NoTTL, Kept or NotFirst. If a permit was granted: that of the first lease
	// to end.
	PTTL      time.Duration
	Exclusive bool // if a shared hold was asked for: the acquire deepens the owner's exclusive hold
	Gone      bool // if not: the owner has not the grant that a Deepen is about
	Deadlock  bool // if not: the owner holds the lock shared, and would wait for itself
	Form      Form // if not: of the lock
	Damage    Damage
	Placed    bool  // Place is known
	Place     int64 // of the plain waiters, as in table/turns.go
}

// DecodeAcquired decodes the answer of the scripts that acquire.
func DecodeAcquired(v resp.Value) (Acquired, error) {
	n, err := numbersOf(v)
	switch {
	case err != nil:
		return Acquired{}, err
	case n.at[0] == done:
		return Acquired{
			Granted: true, Fence: n.at[1], Holds: n.at[2], Damage: Damage(n.at[3]), Placed: true, Place: n.at[4],
			More: n.at[5] == 2, Exclusive: n.at[5] == 3, PTTL: n.duration(6),
		}, nil
	}
	a := Acquired{PTTL: n.duration(1), Placed: n.at[0] == notNow, Place: n.at[2], Form: Form(n.at[3]), Gone: n.at[0] == notHolder}
	if a.PTTL == deadlock {
		a.PTTL, a.Deadlock = NoTTL, true
	}
	return a, nil
}
