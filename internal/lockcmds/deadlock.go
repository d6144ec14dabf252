package lockcmds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// refuseDeadlock ends a wait that closes a circle of holds. First it asks Redis whether each of them goes on: a hold
// that was taken away, of which this proxy does not know yet, ends the circle. Requires no locks.
func (w *waiter) refuseDeadlock(circle []*table.Hold) {
	var held []int64
	for _, h := range circle {
		d, err := runFor(w.e.life, w.e.client, script.Info{Key: h.Lock, Owner: h.Owner}.Call(), script.DecodeDescribed)
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

// errSecondUpgrade refuses a shared holder that wants the lock for itself, while another one waits for that.
const errSecondUpgrade = script.Error(
	"DEADLOCK another holder of the shared lock waits to hold it alone; nothing was done")

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

// The rest of this file finds deadlocks over several proxies. Only a client that holds a lock can be on a circle, so
// other waits cost nothing.
//
//	after longWait ──► tell Redis for which lock this owner waits ──► look: its holders, their waits, … ──► again
//
// A look reads one wait after the other, so the first may have ended before the last is read. A later look proves the
// circle if each wait is the same and was told twice since the first look began: the second time was after the first
// look had ended. Then all of them were there together at that moment. So were their holds: an owner that waits acquires
// no other lock. The wait that began last is refused, by its own proxy alone.
//
// A circle is closed by a wait that begins, so the first look finds it. Later ones are for a look that found nothing
// because Redis had just lost what it was told: they become rare.

const (
	longWait  = time.Second           // before the first look
	nextLook  = longWait / 2          // before each other one
	toldFor   = 3 * nextLook          // then Redis forgets a wait that was not told again
	toldTwice = nextLook + nextLook/2 // between what two looks read of a wait, if it was told twice
)

// Clients choose how much there is to read. A look does not go beyond these limits.
const (
	longestPath = 64   // waits in a row
	mostHolders = 256  // of a lock, and in one look
	longestTold = 1024 // bytes of a lock's name, which is written to Redis again and again
)

// link is a wait on a path.
type link struct {
	owner string
	wait  script.Wait
}

// search is one look for a circle, from a waiter on.
type search struct {
	e    *Engine
	path []link
	left int
}

// lookForCircle tells Redis for the n-th time that the client waits, and looks for a circle. It refuses the wait if an
// earlier look has found the same one. Requires no locks.
func (w *waiter) lookForCircle(n int, before []link) {
	e, stuck := w.e, false
	e.step(func(t *table.Table) { stuck = t.MayBeStuck(&w.Waiter) })
	if !stuck {
		return
	}
	self := link{owner: w.Owner, wait: script.Wait{
		Lock: w.lock(), Shared: w.Kind.Shares(), Since: w.began.UnixMicro(), Told: e.opts.Clock.Now().UnixMicro(),
	}}
	tell := script.Waits{Owner: w.Owner, Tell: &self.wait, TTL: toldFor}
	s := &search{e: e, left: mostHolders, path: []link{self}}
	looks := before != nil || n&(n-1) == 0 // the 1st time, the 2nd, the 4th, the 8th, …
	switch _, err := runFor(e.life, e.client, tell.Call(), script.DecodeWaits); {
	case err != nil || !looks || !s.closes():
		before = nil
	case !isCircle(s.path, before, 0):
		before = s.path
	case isCircle(s.path, before, toldTwice) && youngest(s.path) == 0:
		var locks []string
		for _, one := range s.path {
			locks = append(locks, one.wait.Lock)
		}
		e.step(func(t *table.Table) { t.Remove(&w.Waiter, table.Error, deadlockError(locks)) })
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w.lookLocked(nextLook, n+1, before)
}

// lookLocked calls lookForCircle when d has passed. Requires Engine.mu.
func (w *waiter) lookLocked(d time.Duration, n int, before []link) {
	look := func() { w.lookForCircle(n, before) }
	w.look = w.e.opts.Clock.AfterFunc(d, func() { w.e.calls.Background(jobs.Attempt, look) })
}

// closes goes on from the last wait of the path to the first one's owner. The path is the circle then.
func (s *search) closes() bool {
	at := len(s.path) - 1
	last := s.path[at]
	if len(s.path) > longestPath {
		return false
	}
	call := script.Info{Key: last.wait.Lock, Most: mostHolders}.Call()
	d, err := runFor(s.e.life, s.e.client, call, script.DecodeDescribed)
	if err != nil || d.Mode == script.ModeLimit || d.Mode == script.ModeShared && last.wait.Shared {
		return false // what is in the way is another waiter, or one of several permits
	}
	for _, h := range d.Holders {
		on := func(before link) bool { return before.owner == h.Owner }
		switch {
		case h.Fence == 0, h.Owner == last.owner:
			continue
		case h.Owner == s.path[0].owner:
			return true
		case slices.ContainsFunc(s.path, on):
			continue
		}
		if s.left--; s.left < 0 {
			return false
		}
		wait, err := runFor(s.e.life, s.e.client, script.Waits{Owner: h.Owner}.Call(), script.DecodeWaits)
		if err != nil || wait == nil {
			continue
		}
		s.path = append(s.path, link{owner: h.Owner, wait: *wait})
		if s.closes() {
			return true
		}
		s.path = s.path[:at+1]
	}
	return false
}

// isCircle reports whether two looks have found the same circle, and each of its waits was told that much later to the
// second one.
func isCircle(now, before []link, later time.Duration) bool {
	return slices.EqualFunc(now, before, func(n, b link) bool {
		told := time.Duration(n.wait.Told-b.wait.Told) * time.Microsecond
		n.wait.Told = b.wait.Told
		return n == b && told >= later
	})
}

// youngest is the place of the wait that began last.
func youngest(circle []link) int {
	last := slices.MaxFunc(circle, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.wait.Since, b.wait.Since), cmp.Compare(a.owner, b.owner))
	})
	return slices.Index(circle, last)
}
