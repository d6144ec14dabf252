package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
)

// turnLimit is for how long a free lock is kept for the first in the queue: script/lib/free.lua.
const turnLimit = 250 * time.Millisecond

// crowdCall is the script call of the first plain waiter of a room.
func (e *Engine) crowdCall(w *waiter) script.Crowd {
	return script.Crowd{Acquire: w.plainCall(), Wait: e.opts.fairWait, Crowd: e.crowd, Stays: w.stays, Enqueue: w.enqueue}
}

// crowdGrantedLocked notes that a plain waiter, which is still in the room, has been granted the lock, and where the place is now.
func (e *Engine) crowdGrantedLocked(r *room, place int64) {
	r.crowd.Granted(r.plain.len, turns.Place(place))
	e.listenForPlaceLocked(r)
}

// crowdRefusedLocked notes where the place of the plain waiters is, who have not been granted the lock.
func (e *Engine) crowdRefusedLocked(r *room, place int64) {
	r.crowd.Refused(turns.Place(place))
	e.listenForPlaceLocked(r)
}

// listenForPlaceLocked has the room listen for its place in the queue: Redisson's clients wake the first by name alone, and a place
// that nobody listens for is removed.
func (e *Engine) listenForPlaceLocked(r *room) {
	if !r.crowd.Queued() || r.place != nil {
		return
	}
	r.place = e.hub.join(r.NameChannel(e.crowd))
	r.place.rooms[r] = struct{}{}
	if r.refresh == nil {
		e.refreshInLocked(r)
	}
}

// crowdEmptyLocked gives the place up when the last plain waiter has gone.
func (e *Engine) crowdEmptyLocked(r *room) {
	if r.place == nil {
		return
	}
	delete(r.place.rooms, r)
	e.hub.leave(r.place)
	r.place = nil
	queued := r.crowd.Queued()
	r.crowd = turns.Crowd{}
	if queued {
		e.departPlaceLocked(r.Lock, r.PlaceOf(e.crowd), nil)
	}
}
