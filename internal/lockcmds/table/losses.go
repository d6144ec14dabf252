package table

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// This file remembers the locks that a session has lost, until a reply has told the session.
//
// A session gets -LOSTLEASE for every lost lock, however many there are. Each of them costs lossBytes, because names
// are kept as keyed hashes of 128 bits. The latest mostLosses are known exactly. When older ones were dropped, every
// lock that the session does not hold counts as lost. So a loss may be reported that did not happen, but no loss stays
// unreported.
//
// The losses of a session are one for each lock and owner. Grants of a kind that does not reenter are lost one by one,
// so of them the number is remembered, in place of a fence.

// mostLosses is how many losses of a session are known exactly, at least.
const mostLosses = 1024

// Losses is the losses of one session in one database. The zero value has none. Its methods may be called from any
// goroutine, because the engines of several users may know the session.
type Losses struct {
	Memory *atomic.Int64 // counts the bytes that the losses take, among others; nil: they are not counted

	some atomic.Bool // there may be losses: the usual case, none, costs no lock

	mu            sync.Mutex // a leaf: nothing is called while it is held
	recent, older map[lossName]int64
	vague         bool // some losses have been dropped
}

// lossName is the hash of a Key.
type lossName [2]uint64

var lossSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func lossNameOf(k Key) (n lossName) {
	text := struct {
		lock, owner string
		reenters    bool
	}{k.Lock, k.Owner, k.Kind.Reenters()}
	for i, seed := range lossSeeds {
		n[i] = maphash.Comparable(seed, text)
	}
	return n
}

// Add remembers that the hold was lost, by the grant with that fence.
func (l *Losses) Add(k Key, fence int64) {
	n := lossNameOf(k)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.some.Store(true)
	if !k.Kind.Reenters() {
		fence = l.recent[n] + l.older[n] + 1
	}
	before := l.len()
	delete(l.older, n)
	if _, known := l.recent[n]; !known && len(l.recent) == mostLosses {
		l.vague = l.vague || len(l.older) > 0
		l.older, l.recent = l.recent, nil
	}
	if l.recent == nil {
		l.recent = make(map[lossName]int64)
	}
	l.recent[n] = fence
	l.count(before)
}

// Clear forgets all losses: the session goes on as another client.
func (l *Losses) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.len()
	l.recent, l.older, l.vague = nil, nil, false
	l.some.Store(false)
	l.count(before)
}

// Empty reports whether there was no loss that is not told. It costs no lock.
func (l *Losses) Empty() bool { return !l.some.Load() }

// Fence returns the fence of a loss that is remembered exactly, or the number of them; 0: there is none.
func (l *Losses) Fence(k Key) int64 {
	if l.Empty() {
		return 0
	}
	n := lossNameOf(k)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent[n] + l.older[n] // it is in one of them at most
}

// Forget removes one loss, because the session has been told or has the lock again, and reports whether it was
// remembered exactly.
func (l *Losses) Forget(k Key) bool {
	if l.Empty() {
		return false
	}
	n := lossNameOf(k)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, losses := range []map[lossName]int64{l.recent, l.older} {
		if !k.Kind.Reenters() && losses[n] > 1 {
			losses[n]--
			return true
		}
	}
	before := l.len()
	delete(l.recent, n)
	delete(l.older, n)
	l.count(before)
	left := l.len()
	if left == 0 {
		l.recent, l.older = nil, nil // a burst must not keep its memory
		l.some.Store(l.vague)
	}
	return left < before
}

// lossBytes is about the memory of one loss.
const lossBytes = 96

// count counts the change of the memory since there were that number of losses. Requires l.mu.
func (l *Losses) count(before int) {
	if l.Memory != nil {
		l.Memory.Add(int64(l.len()-before) * lossBytes)
	}
}

func (l *Losses) len() int { return len(l.recent) + len(l.older) }

// Vague reports whether losses have been dropped: a lock that the session does not hold may be one of them.
func (l *Losses) Vague() bool {
	if l.Empty() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vague
}

// Regained forgets the losses that are of no interest to a session whose owner has, or had, a later grant.
func (s *Session) Regained(k Key) {
	if k.Kind.Reenters() {
		s.Losses.Forget(s.lossOf(k))
	}
}

// LostFence is the fence of a loss of the session that it was not told of, as Losses.Fence says.
func (s *Session) LostFence(k Key) int64 {
	if s.Losses.Empty() {
		return 0
	}
	return s.Losses.Fence(s.lossOf(k))
}

// tellLost replaces the reply if the lock was lost while the command was on its way, or the session has lost it before
// and was not told by a reply yet.
func (s *Session) tellLost(k Key, lost bool, reply Reply) Reply {
	if !lost || k.Kind.Reenters() {
		lost = s.Losses.Forget(s.lossOf(k)) || lost
	}
	if lost || s.Losses.Vague() {
		return LostLease
	}
	return reply
}
