package lockcmds

import (
	"context"
	"iter"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// Lock is one lock that clients of this proxy hold or wait for, as operators see it.
type Lock struct {
	User string // the identity of the clients that hold it, or else that wait for it; empty: without credentials
	DB   int
	Held bool // a client of this proxy holds it
	Hold      // its waiters are those of this proxy

	Oldest  time.Time // when the command came that waits for longest; the zero time: none waits
	Another bool      // another holder of the lock was told before, with the same waiters

	engine *IdentityEngine
}

// Describe asks Redis for the holders of the lock, on the engine's own connection. Requires no locks.
func (l *Lock) Describe(ctx context.Context) (script.Described, error) {
	return runFor(ctx, l.engine.client, script.Info{Key: l.Key}.Call(), script.DecodeDescribed)
}

// contended is one lock that clients wait for through an engine.
type contended struct {
	key       string
	all, fair int       // waiters
	oldest    time.Time // when the command came that waits for longest
}

// contended yields the locks that clients wait for through this engine, as inSlices does.
func (e *Engine) contended() iter.Seq[contended] {
	return inSlices(e, (*table.Table).Queues, func(q *table.Queue) (contended, bool) {
		c := contended{key: q.Names().Key}
		c.all, c.fair = q.Len()
		plain, fair := q.First()
		for _, w := range []*table.Waiter{plain, fair} {
			if w != nil && (c.oldest.IsZero() || acquireOf(w).began.Before(c.oldest)) {
				c.oldest = acquireOf(w).began
			}
		}
		return c, c.all > 0
	})
}

// Each calls f for each hold of a lock by clients of this proxy, and for the other locks that they wait for, in no
// order, without locks. A hold or a wait that is there all the time is seen, perhaps twice if it moves. The time and
// the memory grow with the number of locks: not for an event loop.
func (r *Registry) Each(f func(Lock)) {
	type name struct {
		db  int
		key string
	}
	engines := r.all()
	waited := map[name]*Lock{} // Held: it is held here
	for _, e := range engines {
		for c := range e.contended() {
			n := name{e.id.DB, c.key}
			l := waited[n]
			switch {
			case l == nil:
				l = &Lock{User: e.id.User, DB: e.id.DB, Oldest: c.oldest, Hold: Hold{Key: c.key}, engine: e}
				waited[n] = l
			case l.engine == e:
				continue // seen twice
			}
			l.Waiters += c.all
			l.Fair += c.fair
			if c.oldest.Before(l.Oldest) {
				l.Oldest = c.oldest
			}
		}
	}
	for _, e := range engines {
		for h := range e.holds() {
			l := Lock{User: e.id.User, DB: e.id.DB, Held: true, Hold: h, engine: e}
			l.Waiters, l.Fair = 0, 0
			if c := waited[name{e.id.DB, h.Key}]; c != nil {
				l.Waiters, l.Fair, l.Oldest, l.Another = c.Waiters, c.Fair, c.Oldest, c.Held
				c.Held = true
			}
			f(l)
		}
	}
	for _, l := range waited {
		if !l.Held {
			f(*l)
		}
	}
}
