package pins

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
)

// Limits say how many pins there may be, and how long a session waits for one. All are required.
type Limits struct {
	Max, MaxPerOwner int           // pins for work
	Wait             time.Duration // for one of them
	MaxLogins        int
	LoginWait        time.Duration
}

// Change replaces the limits. A session keeps the pin that it has, also beyond the new limits. New waits apply to
// requests to come.
func (ps *Pins) Change(l Limits) {
	ps.mu.Lock()
	ps.resizeLocked(&ps.work, l.Max, l.MaxPerOwner, l.Wait)
	ps.serveLocked(&ps.work)
	ps.mu.Lock()
	ps.resizeLocked(&ps.logins, l.MaxLogins, admission.Share(l.MaxLogins), l.LoginWait)
	ps.serveLocked(&ps.logins)
}

// resizeLocked changes a pool, and closes idle pins that are too many.
func (ps *Pins) resizeLocked(pool *pool, size, share int, patience time.Duration) {
	pool.max, pool.patience = size, patience
	pool.places.Resize(size, share)
	for _, p := range pool.idle.Values() { // the oldest first
		if pool.open <= size && !pool.places.Beyond(p.owner, pool.idle.CountOf(p.owner)) {
			continue
		}
		pool.idle.Remove(p)
		ps.closeLocked(p)
	}
}
