package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// This file ends waits for CLIENT UNBLOCK and for the drain, and counts and lists the waiters. acquire.go has one
// acquire.

// acquireOf is the acquire that waits; nil: none does.
func acquireOf(w *table.Waiter) *acquire {
	if w == nil {
		return nil
	}
	return w.Tag.(*acquire)
}

// Unblock ends the wait of a session, as CLIENT UNBLOCK asks: as if its time were up, or with an error. It reports
// whether the session was waiting. Requires the session lock.
func (e *Engine) Unblock(session uint64, withError bool) (waited bool) {
	defer e.failstop.Guard()
	e.step(func(t *table.Table) {
		c := e.sessions[session]
		switch {
		case c == nil || c.asks == nil:
		case withError:
			waited = t.Remove(&c.asks.Waiter, table.Error, errUnblocked)
		default:
			waited = t.Remove(&c.asks.Waiter, table.Null, nil)
		}
	})
	return waited
}

// Drain refuses all waiters, and those to come, with -OVERLOADED. Holders keep their leases. Requires no locks.
func (e *Engine) Drain() {
	defer e.failstop.Guard()
	e.step(func(t *table.Table) {
		e.draining = true
		t.RemoveAll(errDraining)
	})
}

var (
	errDraining  = errors.New("the proxy is shutting down, connect again")
	errUnblocked = script.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
)

// countLocked is the number of waiters of a lock, and the number of the fair ones. Requires keeper.mu.
func (e *keeper) countLocked(lock string) (all, fair int) {
	if q := e.table.Queue(lock); q != nil {
		return q.Len()
	}
	return 0, 0
}

// fullLocked says why no further client may wait for this lock now, and names the setting that is the reason; empty:
// one may. Requires keeper.mu.
func (e *keeper) fullLocked(lock string) (why, limit string) {
	if e.draining {
		return errDraining.Error(), ""
	}
	all, _ := e.countLocked(lock)
	d := e.defaults()
	return d.Full(e.opts.Waiting.Load(), all)
}

// namesOfLocked returns the names that waiting for a lock needs. Requires keeper.mu.
func (e *keeper) namesOfLocked(lock string) table.Names {
	if q := e.table.Queue(lock); q != nil {
		return q.Names()
	}
	return table.Names{
		Key: lock, Channel: script.Channel(lock),
		Place: script.PlaceOf(lock, e.crowd), Wake: script.NameChannel(lock, e.crowd),
	}
}

// OldestWait is when the command came that waits for a lock for longest; the zero time: none waits. It costs O(1).
// Requires no locks.
func (e *Engine) OldestWait() (began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.table.Oldest(); w != nil {
		began = acquireOf(w).began
	}
	return began
}

// WaitsFor returns the lock that a session asks for, and when its command came. false: it asks for none. Requires no
// locks of this package.
func (e *Engine) WaitsFor(session uint64) (lock string, since time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.sessions[session]
	if c == nil || c.asks == nil {
		return "", time.Time{}, false
	}
	return c.asks.Lock, c.asks.began, true
}
