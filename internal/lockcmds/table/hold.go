package table

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// This file has the holds: which owner holds which lock by which sessions of this proxy.

// Key names what an owner has, or asks for. Of the kinds that reenter, an owner has one hold of a lock.
type Key struct {
	Lock, Owner string
	Kind        Kind
}

// name is the key under which the hold is found: whatever the kind, if it reenters.
func (k Key) name() Key {
	if k.Kind.Reenters() {
		k.Kind = nil
	}
	return k
}

// Client names a client connection for people.
type Client struct {
	Addr string
	Name string // of CLIENT SETNAME; may be empty
}

// Session is the table's part of one session. The caller sets Name, Losses, Tag and Memory before its first use.
type Session struct {
	Name   string // its own, unique. The owners of its acquires that name none have names that begin with it
	Each   bool   // none of these acquires deepens a hold
	Losses *Losses
	Tag    any // the caller's

	// Memory counts the bytes of memory that its holds take. It is read without the caller's mutex. nil: it is not
	// counted.
	Memory *atomic.Int64

	holds []*Hold        // without an order of their own, but a map would give them a random one when the session ends
	at    map[*Hold]int  // their places in holds
	own   map[string]own // by lock: of its holds those for owners of its own, permits only if Each
	// Its holds of kinds that do not reenter, which no session has begun to release: the oldest first, or one whose
	// release has not happened last.
	single lines[Key, *Hold] // by lossOf
	left   bool              // Leave has been called
	waits  *Waiter           // that is in a queue; nil: it waits for no lock

	searched uint64 // the latest search for a circle that has looked at it
}

// own is what a session has of one lock for owners of its own.
type own struct {
	latest *Hold // that it got last; nil: that one has ended
	count  int
	later  bool // it has asked for the lock since it got the latest
}

// Owns reports whether the owner is the session's own: of an acquire that names none.
func (s *Session) Owns(owner string) bool {
	return strings.HasPrefix(owner, s.Name) && (len(owner) == len(s.Name) || owner[len(s.Name)] == ':')
}

// Private reports whether the owner is a session's own, so that no other session acquires for it.
func (h *Hold) Private() bool { return len(h.parts) > 0 && h.parts[0].Session.Owns(h.Owner) }

// lossOf is the name under which the loss of a hold is remembered: a command that names no owner is told of it.
func (s *Session) lossOf(k Key) Key {
	if s.Owns(k.Owner) {
		k.Owner = s.Name
	}
	return k
}

// areOne reports whether both owners are the same, or the session's own: of a session whose acquires may deepen its
// holds, all its own owners are one.
func (s *Session) areOne(a, b string) bool { return a == b || !s.Each && s.Owns(a) && s.Owns(b) }

// OwnerFor is the owner for a first acquire that names none, by a number that was not used before. It does not come
// back: so a late copy of a call finds no later grant.
func (s *Session) OwnerFor(number int64) string {
	var name [80]byte
	return string(strconv.AppendInt(append(append(name[:0], s.Name...), ':'), number, 10))
}

// Asks notes that the session asks for the lock and names no owner.
func (s *Session) Asks(lock string) {
	if o, ok := s.own[lock]; ok {
		o.later = true
		s.own[lock] = o
	}
}

// Own returns the hold that a command without a fence and an owner means; nil: the session has none. ok is false if it
// could mean another one.
func (s *Session) Own(lock string) (h *Hold, ok bool) {
	o := s.own[lock]
	return o.latest, !s.Each || o.count == 0 || o.count == 1 && o.latest != nil && !o.later
}

// Has reports whether the session has a part in the hold.
func (s *Session) Has(h *Hold) bool {
	_, ok := s.at[h]
	return ok
}

// gets records that the session has a part in the hold.
func (s *Session) gets(h *Hold) {
	if s.Has(h) {
		return
	}
	if s.at == nil {
		s.at = make(map[*Hold]int)
	}
	s.at[h] = len(s.holds)
	s.holds = append(s.holds, h)
	s.owns(h, 1)
	if s.Memory != nil {
		s.Memory.Add(h.bytes())
	}
}

// loses records that the session has no part in the hold any more.
func (s *Session) loses(h *Hold) {
	i, ok := s.at[h]
	switch {
	case s.left && s.Memory != nil:
		s.Memory.Add(-h.bytes())
		return
	case !ok:
		return
	}
	end := len(s.holds) - 1
	last := s.holds[end]
	s.holds[i], s.at[last] = last, i
	s.holds[end] = nil
	s.holds = s.holds[:end]
	delete(s.at, h)
	s.owns(h, -1)
	if s.Memory != nil {
		s.Memory.Add(-h.bytes())
	}
}

// owns counts a hold, or the end of one, if it is of an owner of the session's own.
func (s *Session) owns(h *Hold, more int) {
	if !s.Owns(h.Owner) || !s.Each && !h.Kind.Reenters() {
		return
	}
	o := s.own[h.Lock]
	o.count += more
	switch {
	case o.count == 0:
		delete(s.own, h.Lock)
		return
	case more > 0:
		o.latest, o.later = h, false
	case o.latest == h:
		o.latest = nil
	}
	if s.own == nil {
		s.own = make(map[string]own)
	}
	s.own[h.Lock] = o
}

// spare puts a hold of a kind that does not reenter into the list of the session that has it, unless a session releases
// it.
func (h *Hold) spare() {
	if h.holder != nil || h.releasing > 0 || !h.known || h.Kind.Reenters() {
		return
	}
	i := slices.IndexFunc(h.parts, func(p Part) bool { return p.Holds > 0 })
	if i < 0 {
		return
	}
	h.holder = h.parts[i].Session
	if h.holder.single == nil {
		h.holder.single = lines[Key, *Hold]{}
	}
	h.holder.single.Push(h.holder.lossOf(h.Key), &h.single, h)
}

// unspare takes it out.
func (h *Hold) unspare() {
	if h.holder != nil {
		h.holder.single.Remove(h.holder.lossOf(h.Key), &h.single)
		h.holder = nil
	}
}

// Holding is how many holds the session has a part in.
func (s *Session) Holding() int { return len(s.holds) }

// Leave returns the holds of a session that has ended, for EndPart. Later losses are not told to it.
func (s *Session) Leave() []*Hold {
	holds := s.holds
	s.holds, s.at, s.own, s.left = nil, nil, nil, true
	return holds
}

// Hold is a lock that sessions of this proxy hold for one owner, by one grant. The caller reads the exported fields;
// the table alone changes them, but for Lease and Noted.
type Hold struct {
	Key
	Fence  int64
	Count  int64         // acquires not yet released, as Redis said
	TTL    time.Duration // length of the lease
	Fixed  bool          // the client has set the length: never renewed
	Until  time.Time     // the limit of renewals; zero: none
	Since  time.Time     // when the command was sent that acquired it
	Streak Streak        // of the hand-over that has granted it
	Limit  int           // of a permit: how many may hold the lock, by the word of its acquire
	Note   string        // of the client's latest acquire with one
	Noted  bool          // Redis has a note
	Lease  watchdog.Lease

	countedAt time.Time // when the command was sent that Redis said Count to
	parts     []Part
	first     [1]Part // the memory of parts while there is one: most holds have no more
	// Calls of sessions here that are on their way: a loss may be no more than them.
	releasing int64 // releases
	ending    int64 // ends of the grant by its handle
	// Acquires here on their way that may deepen it: Deepening.
	acquiring int64
	known     bool   // the table has it
	lost      bool   // it ended as a loss
	reason    string // of the loss
	// Its report, which waits for releases that may have ended the hold; nil: it was made, or there is none.
	untold   *Loss
	holder   *Session     // in whose single the hold is; nil: in none
	single   node[*Hold]  // its node there
	index    int          // in holders.holds
	beside   *besideNodes // the hold in others; nil: it is not there
	look     look
	released bool // a message proves that the grant, if it is over, was released by its handle; Redis is asked
}

// Part is one session's part in a hold.
type Part struct {
	Session *Session
	Holds   int64 // its acquires less its releases, those on their way included
	// The most that is left of the lease when the session ends, if no other session holds it; negative: all.
	Grace   time.Duration
	Client  Client
	Acquire string // the name of the acquire by which it has got its part, for a named owner

	releasing int // how many releases of the session are on their way
}

// holdCost is the memory of a hold without its names: the records here and in the watchdog.
const holdCost = 640

// bytes is the memory that the hold takes, about.
func (h *Hold) bytes() int64 { return int64(holdCost + len(h.Lock) + len(h.Owner)) }

// Parts are the sessions that have a part in the hold, the first one first. The caller does not change or keep them.
func (h *Hold) Parts() []Part { return h.parts }

// PartOf returns a session's part in the hold; nil: it has none.
func (h *Hold) PartOf(s *Session) *Part {
	for i := range h.parts {
		if h.parts[i].Session == s {
			return &h.parts[i]
		}
	}
	return nil
}

// Client is the client of the first session that holds the lock, or that has begun to release its last hold if all
// have.
func (h *Hold) Client() Client {
	if len(h.parts) == 0 {
		return Client{}
	}
	i := slices.IndexFunc(h.parts, func(p Part) bool { return p.Holds > 0 })
	return h.parts[max(i, 0)].Client
}

// Reason is why the hold was lost; empty: it was not.
func (h *Hold) Reason() string { return h.reason }

// IsLost reports whether the hold has ended as a loss.
func (h *Hold) IsLost() bool { return h.lost }

// IsHeld reports whether sessions here have holds that they have not begun to release.
func (h *Hold) IsHeld() bool {
	return slices.ContainsFunc(h.parts, func(p Part) bool { return p.Holds > 0 })
}

// IsHeldBy reports whether the session has holds that it has not begun to release.
func (h *Hold) IsHeldBy(s *Session) bool {
	o := h.PartOf(s)
	return o != nil && o.Holds > 0
}

// unused reports whether no session here has holds or may get one, by confirmed releases. The owner may still hold the
// lock through another proxy.
func (h *Hold) unused() bool {
	return h.releasing+h.acquiring == 0 && !h.IsHeld()
}

// givenUp reports whether the hold may have ended by the releases of its sessions: they need not be told.
func (h *Hold) givenUp() bool { return h.ending > 0 || h.releasing >= h.Count }

// counted notes how many holds there are, as Redis answered a command sent at that instant. Several sessions of one
// owner may hear the answers in another order; an older one says nothing about the lease either.
func (h *Hold) counted(n int64, sentAt time.Time) (newer bool) {
	if sentAt.Before(h.countedAt) {
		return false
	}
	h.Count, h.countedAt = n, sentAt
	return true
}

// promise puts the limit of renewals off to the end of the lease that was set by a command sent at that instant: a
// client may rely on what it was given last.
func (h *Hold) promise(sentAt time.Time) {
	if end := sentAt.Add(h.TTL); !h.Until.IsZero() && end.After(h.Until) {
		h.Until = end
	}
}

// look is whether Redis is asked if the grant of a hold goes on.
type look uint8

const (
	noLook    look = iota
	lookSent       // the question is on its way
	lookAgain      // there was another reason to ask meanwhile: Redis may have answered before it
)

// Look reports whether Redis is to be asked now if the grant goes on. If the question is on its way, it will be asked
// again: however often a client gives a reason to look, there is one question at a time for a grant. released says that
// the reason proves that the grant was released by its handle, if it is over: until the answer, its end is no loss.
func (h *Hold) Look(released bool) bool {
	h.released = h.released || released
	if h.look != noLook {
		h.look = lookAgain
		return false
	}
	h.look = lookSent
	return true
}

// Proven reports whether a reason to ask, of those since Looked, proves what Look says.
func (h *Hold) Proven() bool { return h.released }

// Looked notes that Redis has answered, and reports whether it is to be asked again.
func (h *Hold) Looked() (again bool) {
	again = h.known && h.look == lookAgain
	if h.look = noLook; again {
		h.look = lookSent
	} else {
		h.released = false
	}
	return again
}

// Hold returns the hold of an owner, the latest if there are several; nil: there is none. A hold of a kind that
// reenters may be of another such kind.
func (t *holders) Hold(k Key) *Hold { return t.locks.find(k) }

// Meant returns the hold that a release or an extension of a session is about; nil: there is none. named is the fence
// that the client has named; 0: none. If the owner has several, it is the session's oldest that no session has begun to
// release. Which of those of other sessions it is, Redis says.
func (t *holders) Meant(by *Session, k Key, named int64) (found *Hold) {
	switch {
	case k.Kind.Reenters():
		return t.locks.find(k)
	case named != 0:
		if h := t.locks.granted(k.Lock, named); h != nil && h.Key == k {
			found = h
		}
		return found
	}
	return by.single.First(by.lossOf(k))
}

// HoldByFence returns the hold of a lock by its grant; nil: there is none.
func (t *holders) HoldByFence(lock string, fence int64) *Hold { return t.locks.granted(lock, fence) }

// Knows reports whether the hold has not ended.
func (t *holders) Knows(h *Hold) bool { return h.known }

// Latest returns the latest hold of a lock of any owner; nil: none is known.
func (t *holders) Latest(lock string) *Hold { return t.locks[lock].latest }

// Holds is the holds in no order, for callers that walk them backwards in slices. If a hold ends, the last one takes
// its place. The caller does not change or keep it.
func (t *holders) Holds() []*Hold { return t.holds }

// counted is how many holds there are of a kind. There are few kinds.
type counted struct {
	kind  Kind
	holds int
}

// Count is how many of the holds are of a kind.
func (t *holders) Count(kind Kind) int {
	if i := slices.IndexFunc(t.counts, func(c counted) bool { return c.kind == kind }); i >= 0 {
		return t.counts[i].holds
	}
	return 0
}

func (t *holders) count(kind Kind, more int) {
	i := slices.IndexFunc(t.counts, func(c counted) bool { return c.kind == kind })
	if i < 0 {
		i, t.counts = len(t.counts), append(t.counts, counted{kind: kind})
	}
	t.counts[i].holds += more
}

// add records a new hold.
func (t *holders) add(k Key, fence int64) *Hold {
	h := &Hold{Key: k, Fence: fence, index: len(t.holds), known: true}
	t.locks.add(h)
	t.holds = append(t.holds, h)
	t.count(k.Kind, 1)
	return h
}

// Drop forgets a hold, because it was released, lost, or given up.
func (t *holders) Drop(h *Hold) { t.drop(h, End{Client: h.Client()}) }

func (t *holders) drop(h *Hold, end End) {
	if h.known {
		h.known = false
		t.locks.remove(h)
		last := len(t.holds) - 1
		moved := t.holds[last]
		t.holds[h.index], moved.index = moved, h.index
		t.holds[last] = nil
		t.holds = t.holds[:last]
		t.count(h.Kind, -1)
	}
	h.unspare()
	for _, o := range h.parts {
		o.Session.loses(h)
	}
	h.parts, h.first = nil, [1]Part{}
	t.emit(Effect{Op: Forget, Hold: h, End: end})
}

// EndPart takes a session that has ended out of a hold, and returns its part. rest: its GRACE applies. It does not while
// other sessions here go on to hold the lock for the owner. While a release of a named owner's hold is on its way, the part
// stays, because a drop could free the lock for another session of the owner, whose hold the release would take. EndPart
// is called again behind the answer.
func (t *holders) EndPart(h *Hold, s *Session) (o Part, rest bool) {
	i := slices.IndexFunc(h.parts, func(p Part) bool { return p.Session == s })
	if i < 0 {
		return o, false // it was lost or let go meanwhile
	}
	private := s.Owns(h.Owner)
	if !private && h.parts[i].releasing > 0 {
		return o, false
	}
	h.unspare()
	end := End{Client: h.Client(), HungUp: h.parts[i].Holds > 0}
	o = h.parts[i]
	h.parts = slices.Delete(h.parts, i, i+1)
	s.loses(h)
	last := len(h.parts) == 0 || h.unused()
	if last {
		t.drop(h, end)
	}
	h.spare()
	return o, last && o.Grace >= 0 && (private || o.Holds > 0)
}

func (t *holders) continueLease(h *Hold) { t.emit(Effect{Op: Continue, Hold: h}) }

// Lost ends a hold that is not ours any more. The session that learns it by its own reply is left out. certain: the
// releases that are on their way cannot have ended it.
func (t *holders) Lost(h *Hold, reason string, certain bool, except *Session) {
	h.lost, h.reason = true, reason
	loss := &Loss{Key: h.Key, Fence: h.Fence, Reason: reason, Since: h.Since, Client: h.Client()}
	for _, o := range h.parts {
		// A session without holds has lost none. If its release is on its way, the reply tells it.
		if o.Session != except && o.Holds > 0 {
			loss.To = append(loss.To, o.Session)
		}
	}
	t.Drop(h)
	if h.givenUp() && !certain { // the answers to the releases say whether they came in time
		h.untold = loss
		return
	}
	if reason == ReasonGone && !certain && except == nil {
		if !h.released {
			t.suspect(loss)
		}
		return
	}
	t.tell(loss)
}

// Gone ends a hold that Redis does not have any more, if it goes on here.
func (t *holders) Gone(h *Hold) {
	if h.known {
		t.Lost(h, ReasonGone, false, nil)
	}
}

// tellUntold reports a loss that was not told because releases were on their way, when one of them has been answered
// and the others cannot have ended the hold.
func (t *holders) tellUntold(r *Release, a HoldAnswer, reply Reply) {
	h := r.Hold
	if h == nil || h.untold == nil {
		return
	}
	switch a.Status {
	case Freed:
		h.untold = nil
		return
	case Held:
		h.Count = a.Holds
	case Busy, NotHolder, OtherGrant, Refused, Failed, InDoubt:
	}
	if reply == LostLease {
		h.untold.To = slices.DeleteFunc(h.untold.To, func(s *Session) bool { return s == r.By })
	}
	t.tellIfKept(h)
}

// tellIfKept reports a loss that was not told, if what is on its way cannot have ended the hold.
func (t *holders) tellIfKept(h *Hold) {
	if loss := h.untold; loss != nil && !h.givenUp() && len(loss.To) > 0 {
		h.untold = nil
		t.tell(loss)
	}
}

// KnowsLoss reports that the session has lost this lock, and forgets it: the answer is to be LostLease, and nothing may
// be sent. Redis may have the key for an instant more, or for the same owner by another session. A session that was
// told of the loss must not act on it unawares. named is the fence that the client has named; 0: none.
func (t *holders) KnowsLoss(s *Session, k Key, named int64) bool {
	return t.Meant(s, k, named) == nil && s.Losses.Forget(s.lossOf(k))
}

// KnowsLossOf is KnowsLoss for a release. Redis is asked about another grant than the lost one, and as long as the loss
// is not told: the owner may have released the lock through another proxy, and hold it again there.
func (t *holders) KnowsLossOf(s *Session, k Key, named int64) bool {
	lost := s.LostFence(k)
	if lost != 0 && k.Kind.Reenters() && (named != 0 && named != lost || t.Suspected(k.Lock, lost) != nil) {
		return false
	}
	return t.KnowsLoss(s, k, named)
}
