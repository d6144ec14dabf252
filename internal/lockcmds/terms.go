package lockcmds

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

// This file works out the terms of an acquire: the options of the command, and the present defaults for the others. It
// does no I/O, keeps no state and reads no clock.
//
//	grammar.Command, Defaults ──► termsOf ──► acquireTerms ──► how long the client waits, and the terms of its hold

// SyncAll is the number of replicas that stands for all that the operator or the topology knows.
const SyncAll = -1

// Defaults are the settings of the lock commands that can change while engines run. A change applies to commands to
// come.
type Defaults struct {
	Lease   time.Duration  // renewed by the watchdog
	Grace   *time.Duration // the most that may be left of a lease after the connection ends; nil: all of it
	MaxHold time.Duration  // how long the watchdog renews; 0: without a limit
	Sync    int            // replicas that must have a grant before it is answered; 0: none; SyncAll: all that are known

	MaxWaiters        int // 0: no limit
	MaxWaitersPerLock int // 0: no limit

	Reentry Reentry // for whom a connection acquires that names no OWNER

	// NoteHost is the host in the notes of holds whose clients give none; empty: these have none.
	NoteHost string

	Slow time.Duration // waits and holds that take longer are logged; 0: none
}

// Reentry says whether the connection is the owner of the locks that it acquires without OWNER, and may acquire them
// again, or whether each of these acquires has an owner of its own. It is decided at its first lock command.
type Reentry string

// The values of Reentry.
const (
	ReentryAuto       Reentry = "auto"       // ReentryOwner, if a client library has announced itself on the connection
	ReentryConnection Reentry = "connection" // the connection is the owner
	ReentryOwner      Reentry = "owner"      // each acquire has an owner of its own; a named OWNER alone acquires again
)

// each reports whether each acquire of a connection has an owner of its own. announced: a client library has announced
// itself on the connection. The zero value is ReentryAuto.
func (r Reentry) each(announced bool) bool {
	return r == ReentryOwner || r != ReentryConnection && announced
}

// Full says why no further client may wait, and names the limit that is the reason; empty: one may. all clients wait,
// and forLock of them for the same lock.
func (d *Defaults) Full(all int64, forLock int) (why, limit string) {
	switch {
	case d.MaxWaiters > 0 && all >= int64(d.MaxWaiters):
		return "too many waiters (max-waiters)", "max-waiters"
	case d.MaxWaitersPerLock > 0 && forLock >= d.MaxWaitersPerLock:
		return "too many waiters for this lock", "waiters of one lock"
	}
	return "", ""
}

// acquireTerms are those of one acquire.
type acquireTerms struct {
	Verb    grammar.Verb
	Lease   time.Duration // of a grant
	MaxHold time.Duration // 0: none
	Grace   time.Duration // negative: all
	Wait    time.Duration // negative: without a limit
	Sync    int           // replicas that must have the grant; 0: none; SyncAll: all that are known
	Fixed   bool          // the client has set the lease, which is never renewed
	Note    string        // of the hold; empty: none
	Chosen  bool          // the client's terms have set the lease, not lock.lease
}

// termsOf returns the terms of a command.
func termsOf(cmd *grammar.Command, d *Defaults) acquireTerms {
	t := acquireTerms{
		Verb: cmd.Verb, Wait: cmd.Wait, Lease: cmd.Lease, Fixed: cmd.Lease > 0,
		MaxHold: cmd.MaxHold, Grace: cmd.Grace, Sync: cmd.Sync, Note: cmd.Note,
	}
	if t.Sync < 0 {
		t.Sync = d.Sync
	}
	if !t.Fixed {
		t.Lease = d.Lease
	}
	if t.MaxHold < 0 { // the default is a limit for renewals
		t.MaxHold = 0
		if !t.Fixed {
			t.MaxHold = d.MaxHold
		}
	}
	if t.MaxHold > 0 {
		t.Lease = min(t.Lease, t.MaxHold)
	}
	t.Chosen = t.Fixed || t.Lease < d.Lease
	if t.Grace < 0 && d.Grace != nil {
		t.Grace = *d.Grace
	}
	return t
}

// MayWait reports whether a client has time left that has waited for this time.
func (t *acquireTerms) MayWait(waited time.Duration) bool {
	return t.Wait < 0 || t.Wait > 0 && waited < t.Wait
}

const (
	// syncMost is the time that replicas have to confirm a grant, if the client has as much left to wait.
	syncMost = time.Second
	// syncLeast is the time that they have in any case, so that TRYLOCK can use SYNC.
	syncLeast = 300 * time.Millisecond
)

// ConfirmUntil is when replicas must have confirmed a grant of now, by an acquire that began then and was sent at that
// moment: its lease goes on from there. An acquire that deepens a hold leaves half of its lease for a rollback, because
// the whole hold ends with that lease.
func (t *acquireTerms) ConfirmUntil(now, began, sentAt time.Time, deepens bool) time.Time {
	limit := syncMost
	if t.Wait >= 0 {
		limit = min(limit, max(syncLeast, began.Add(t.Wait).Sub(now)))
	}
	until, lease := now.Add(limit), t.Lease
	if deepens {
		lease /= 2
	}
	if end := sentAt.Add(lease); end.Before(until) {
		until = end
	}
	return until
}
