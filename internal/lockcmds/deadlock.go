package lockcmds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// refuseDeadlock ends a wait that closes a circle of holds. First it asks Redis whether each of them goes on: a hold
// that was taken away, of which this proxy does not know yet, ends the circle. Requires no locks.
func (w *acquire) refuseDeadlock(circle []*table.Hold) {
	var held []int64
	for _, h := range circle {
		d, err := runFor(w.e.life, w.e.client, script.Info{Key: h.Lock, Owner: h.Owner, Fence: h.Fence}.Call(), script.DecodeDescribed)
		holder := d.Find(h.Fence)
		if err != nil || holder == nil || holder.Owner != h.Owner {
			return
		}
		held = append(held, holder.Holds)
	}
	var again []*table.Hold
	w.e.step(func(t *table.Table) {
		counted := func(h *table.Hold, holds int64) bool { return h.Count == holds } // else another proxy has some of them
		switch now := t.Deadlock(&w.Waiter); {
		case !slices.Equal(now, circle): // a wait has ended meanwhile, but the waiter may be in another circle
			again = now
		case slices.EqualFunc(circle, held, counted):
			t.Remove(&w.Waiter, table.Error, deadlockError(locksOf(circle)))
		}
	})
	if again != nil {
		w.refuseDeadlock(again)
	}
}

// errHoldsShared refuses an owner that holds the lock shared, and wants it for itself: it would wait for itself.
const errHoldsShared = script.Error("DEADLOCK this owner holds the lock shared: release the shared hold first")

// errBlocksItself refuses a wait for a hold of the same connection, if another command stands behind it.
const errBlocksItself = script.Error(
	"DEADLOCK a LOCK blocks its connection, as BLPOP does: give locks a connection of their own")

// longWait is how long a wait for a hold of the same connection lasts before it is logged.
const longWait = time.Second

// watchBehindLocked has the wait refused when a command stands behind it that its connection is not to be without: it
// waits for a hold that this connection has taken, whose release may stand there, or wait for that command. It is not
// refused at once, because the release may come on another connection. Requires the session lock and keeper.mu.
func (w *acquire) watchBehindLocked() {
	e := w.e
	w.s.Conn.OnBehind(w.Lock, func() {
		e.step(func(t *table.Table) {
			if t.BlocksItself(&w.Waiter) {
				t.Remove(&w.Waiter, table.Error, errBlocksItself)
			}
		})
	})
	w.blocks = e.opts.Clock.AfterFunc(longWait, func() {
		e.mu.Lock()
		blocks, client, library := e.table.BlocksItself(&w.Waiter), w.s.Client, w.s.Library
		e.mu.Unlock()
		if blocks {
			e.opts.Reentries.NoteBlocks(client, library, w.Lock)
		}
	})
}

// longestCircle is how many locks of a circle an error names.
const longestCircle = 8

func locksOf(circle []*table.Hold) (locks []string) {
	for _, h := range circle {
		locks = append(locks, h.Lock)
	}
	return locks
}

// deadlockError names the locks of the circle, from that for which the refused client asks.
func deadlockError(circle []string) error {
	var names []string
	for _, lock := range circle[:min(len(circle), longestCircle)] {
		names = append(names, strconv.Quote(logging.Excerpt(lock, longestInError)))
	}
	if more := len(circle) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more locks", more))
	}
	return script.Error("DEADLOCK this client would wait for " + strings.Join(names, ", whose holder waits for ") +
		", which this client holds; nothing was done")
}

// longestInError bounds the name of a lock in an error, in bytes.
const longestInError = 64
