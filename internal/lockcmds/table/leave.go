package table

import "time"

// This file has places of waiters leave the queues of locks in Redis together: one call takes out all places of a lock
// that have gathered while the call before was on its way. So the end of n waiters costs n steps here, and one pass
// over the queue in Redis for each batch.
//
//	depart ──► gathered ──RemovePlaces──► Departing ──► the caller asks Redis ──► Departed: the replies that waited
//	   └─ with a reply: Patience ──► PatienceDue: a reply is put off for replyDelay at most

const (
	// replyDelay bounds the delay of a reply that waits for a place to leave the queue: it is between half of it and
	// all of it.
	replyDelay = 50 * time.Millisecond
	// batchLimit bounds one call, because Redis serves no other client meanwhile.
	batchLimit = 1000
)

// leaving is the departures of all locks.
type leaving struct {
	*effects

	byLock   map[string]*departures
	occupied func(lock, place string) bool // a waiter here has that place
}

// departures is the places of one lock that are to leave its queue in Redis. It exists while there are any.
type departures struct {
	list, batch []departure  // batch is those of the call on its way
	replies     []*lateReply // those of an earlier round first
	round       int
	timed       bool // PatienceDue follows
}

type departure struct {
	place string
	reply *lateReply // nil: no reply waits until the place has left
}

// lateReply is a reply that is given when the place has left, or when the waiter has been put off for long enough.
type lateReply struct {
	finish Effect
	round  int
	sent   bool
}

// depart has a place leave the queue of a lock. A reply is given when the place has left, or replyDelay has passed;
// nil: none waits.
func (x *leaving) depart(key, place string, reply *Effect) {
	d := x.byLock[key]
	if d == nil {
		d = &departures{}
		x.byLock[key] = d
		x.emit(Effect{Op: RemovePlaces, Key: key})
	}
	one := departure{place: place}
	if reply != nil {
		one.reply = &lateReply{finish: *reply, round: d.round}
		d.replies = append(d.replies, one.reply)
		if !d.timed {
			d.timed = true
			x.emit(Effect{Op: Patience, Key: key, Delay: replyDelay / 2})
		}
	}
	d.list = append(d.list, one)
}

// PatienceDue says that the timer of the effect Patience has run out. A reply that has waited for a whole round is
// sent.
func (x *leaving) PatienceDue(key string) {
	d := x.byLock[key]
	if d == nil {
		return
	}
	n := 0
	for n < len(d.replies) && d.replies[n].round < d.round {
		n++
	}
	for _, l := range d.replies[:n] {
		x.sendLate(l)
	}
	d.replies = d.replies[n:]
	d.round++
	if d.timed = len(d.replies) > 0; d.timed {
		x.emit(Effect{Op: Patience, Key: key, Delay: replyDelay / 2})
	}
}

func (x *leaving) sendLate(l *lateReply) {
	if l != nil && !l.sent {
		l.sent = true
		x.emit(l.finish)
	}
}

// Departing returns the places that the call for the effect RemovePlaces is to take out: those that have gathered when
// it begins, without those that a waiter has by now. A call that is repeated asks again.
func (x *leaving) Departing(key string) []string {
	d := x.byLock[key]
	if d == nil {
		return nil
	}
	if d.batch == nil {
		n := min(len(d.list), batchLimit)
		d.batch, d.list = d.list[:n:n], d.list[n:]
	}
	places := make([]string, 0, len(d.batch))
	for _, one := range d.batch {
		if !x.occupied(key, one.place) {
			places = append(places, one.place)
		}
	}
	return places
}

// Departed says that the call for the effect RemovePlaces has ended.
func (x *leaving) Departed(key string) {
	d := x.byLock[key]
	if d == nil {
		return
	}
	for _, one := range d.batch {
		x.sendLate(one.reply)
	}
	if d.batch = nil; len(d.list) == 0 {
		delete(x.byLock, key)
		return
	}
	x.emit(Effect{Op: RemovePlaces, Key: key})
}

// Leaving is how many locks have places that are to leave the queue in Redis.
func (x *leaving) Leaving() int { return len(x.byLock) }
