package pins

import (
	"cmp"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
)

// Limits say how many pins there may be, and how long a session waits for one. All but MaxPerOwner are required.
type Limits struct {
	Max         int           // pins for work
	MaxPerOwner int           // pins for the clients of one address; 0: three quarters of Max
	Wait        time.Duration // for one of them
	MaxLogins   int           // connections on which Redis judges identity changes
	LoginWait   time.Duration // for one of them
}

// share is the number of pins for work that one owner may have.
func (l *Limits) share() int { return cmp.Or(l.MaxPerOwner, admission.Share(l.Max)) }

// Change replaces the limits. A session keeps the pin that it has, also beyond the new limits. New waits apply to
// requests to come.
func (ps *Pins) Change(l Limits) {
	ps.mu.Lock()
	ps.resizeLocked(&ps.work, l.Max, l.share(), l.Wait)
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
