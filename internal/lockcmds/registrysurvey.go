package lockcmds

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Lock is one lock that clients of this proxy hold or wait for, as operators see it.
type Lock struct {
	User string // the identity of the clients that hold it, or else that wait for it; empty: without credentials
	DB   int
	Held bool // a client of this proxy holds it
	Hold

	Waiters int       // of this proxy
	Fair    int       // of these, waiters of FAIRLOCK
	Oldest  time.Time // when the command came that waits for longest; the zero time: none waits
	Another bool      // another holder of the lock was told before, with the same waiters

	engine *IdentityEngine
}

// Describe asks Redis for the holders of the lock.
func (l *Lock) Describe(ctx context.Context) (script.Described, error) {
	return l.engine.Describe(ctx, l.Key)
}

// name tells locks apart.
type name struct {
	db  int
	key string
}

// Each calls f for each hold of a lock by clients of this proxy, and for the other locks that they wait for, in no order,
// without locks. A hold or a wait that is there all the time is seen, perhaps twice if it moves. The time and the memory
// grow with the number of locks: not for an event loop.
func (r *Registry) Each(f func(Lock)) {
	engines := r.all()
	waited := map[name]*Lock{} // without those that are held here
	for _, e := range engines {
		e.EachContended(func(c Contended) {
			n := name{e.id.DB, c.Key}
			l := waited[n]
			switch {
			case l == nil:
				l = &Lock{User: e.id.User, DB: e.id.DB, Oldest: c.Oldest, engine: e}
				l.Key = c.Key
				waited[n] = l
			case l.engine == e:
				return // seen twice
			}
			l.Waiters += c.All
			l.Fair += c.Fair
			if c.Oldest.Before(l.Oldest) {
				l.Oldest = c.Oldest
			}
		})
	}
	for _, e := range engines {
		e.EachHold(func(h Hold) {
			l := Lock{User: e.id.User, DB: e.id.DB, Held: true, Hold: h, engine: e}
			n := name{e.id.DB, h.Key}
			if c := waited[n]; c != nil {
				l.Waiters, l.Fair, l.Oldest, l.Another = c.Waiters, c.Fair, c.Oldest, c.Held
				c.Held = true
			}
			f(l)
		})
	}
	for _, l := range waited {
		if !l.Held {
			f(*l)
		}
	}
}

// OldestWait is when the command came that waits for a lock for longest; the zero time: none waits. It costs O(1) for
// each engine.
func (r *Registry) OldestWait() (oldest time.Time) {
	for _, e := range r.all() {
		if t := e.OldestWait(); !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	return oldest
}

// ErrUnknown says that no client of the proxy uses locks as that user in that database.
var ErrUnknown = errors.New("no client of this proxy uses locks as that user in that database")

// Force ends a lock for an operator, on the connection of an engine of that identity. fence names the grant that is
// meant; 0: one without a fence. false: the lock is free, or another grant holds it.
func (r *Registry) Force(ctx context.Context, user string, db int, key string, fence int64, operator string) (bool, error) {
	var by *IdentityEngine
	for _, e := range r.all() {
		if e.id.DB == db && e.id.User == user {
			by = e
		}
	}
	if by == nil {
		return false, ErrUnknown
	}
	return by.Force(ctx, key, fence, operator)
}

// forced says that the engine of an identity has ended a grant by force. The holder and the waiters may be of other
// identities.
func (r *Registry) forced(by EngineID, key string, ended script.Forced) {
	for _, e := range r.all() {
		if e.id.DB == by.DB && e.id != by {
			e.Forced(key, ended)
		}
	}
}
