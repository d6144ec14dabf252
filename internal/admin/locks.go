package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Where the holder of a lock is.
const (
	holderHere      = "here"      // a client of this proxy
	holderGone      = "gone"      // a client that this proxy had: the lease will expire
	holderElsewhere = "elsewhere" // a client of another proxy, or of Redisson
	holderNamed     = "named"     // an OWNER for which no client of this proxy holds the lock
	holderNone      = "none"      // the lock is free: a waiter is about to get it
	holderUnknown   = "unknown"   // Redis has not said in time
)

// How the lease of a holder here goes on.
const (
	renewed = "renewed" // by the watchdog of this proxy
	late    = "late"    // the watchdog has not been able to renew it for more than half of the lease
	fixed   = "fixed"   // the client has set its end
)

// Lock is a row of the table of locks. The owner is left out: its name is enough to release the lock. Durations are in
// seconds, and -1 stands for none, or for one that is not known.
type Lock struct {
	Key       string  `json:"key"`
	KeyBase64 string  `json:"key_base64,omitempty"` // the bytes of a key that is not UTF-8, unless it is shortened
	KeyBytes  int     `json:"key_bytes,omitempty"`  // the length of a key that is shortened
	Database  int     `json:"database"`
	User      string  `json:"user"` // whose clients hold it, or else wait for it
	Holder    string  `json:"holder"`
	Client    string  `json:"client,omitempty"`  // address of the holder
	Name      string  `json:"name,omitempty"`    // CLIENT SETNAME of the holder
	Note      string  `json:"note,omitempty"`    // of the holder
	Process   string  `json:"process,omitempty"` // of a holder elsewhere: the UUID of the proxy, or of the Redisson client
	Held      float64 `json:"held_seconds"`
	LeaseLeft float64 `json:"lease_left_seconds"`
	Renewal   string  `json:"renewal,omitempty"` // of a holder here: one of those above
	Holds     int64   `json:"holds"`
	Fence     int64   `json:"fence"`
	Mode      string  `json:"mode,omitempty"`    // exclusive, shared or limit; empty: it is not known
	Limit     int64   `json:"limit,omitempty"`   // of the mode limit: how many may hold the lock
	Holders   int     `json:"holders,omitempty"` // of a lock without a holder here: how many there are
	Waiters   int     `json:"waiters"`           // of this proxy
	Fair      int     `json:"fair_waiters"`
	Waiting   float64 `json:"oldest_wait_seconds"`
}

// Locks is the answer of /locks.
type Locks struct {
	process
	At        time.Time `json:"at"`
	Held      int       `json:"held"`      // by clients of this proxy
	Contended int       `json:"contended"` // locks with waiters at this proxy
	Matching  int       `json:"matching"`
	Rows      []Lock    `json:"locks"`
}

// FindLocks looks at all locks. The rows are those of the locks with the longest waits. Redis is asked for the holders
// that are not here, of these rows only. It may take as long as ctx.
func (s *Source) FindLocks(ctx context.Context, q Query) Locks {
	now := time.Now()
	out := Locks{At: now}
	var found []proxy.SeenLock
	s.EachLock(func(l proxy.SeenLock) {
		if l.Held {
			out.Held++
		}
		if l.Waiters > 0 && !l.Another {
			out.Contended++
		}
		switch {
		case q.Only == "contended" && l.Waiters == 0, q.Only == "held" && !l.Held, q.Only == "orphaned" && l.Held:
			return
		case !q.has(l.Key, l.Client.Addr, l.Client.Name):
			return
		}
		out.Matching++
		if found = append(found, l); len(found) >= 4*maxRows { // so that the memory does not depend on their number
			found = longest(found)
		}
	})
	found = longest(found)
	out.Rows = make([]Lock, len(found))
	for i := range found {
		out.Rows[i] = rowOf(&found[i], now)
	}
	s.askHolders(ctx, found, out.Rows)
	return out
}

// longest are the locks of one table: those with the longest waits, then those without a wait by their keys.
func longest(all []proxy.SeenLock) []proxy.SeenLock {
	slices.SortFunc(all, func(a, b proxy.SeenLock) int {
		if a.Oldest.IsZero() != b.Oldest.IsZero() {
			if a.Oldest.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(
			a.Oldest.Compare(b.Oldest), cmp.Compare(a.Key, b.Key), cmp.Compare(a.DB, b.DB), cmp.Compare(a.Fence, b.Fence))
	})
	return all[:min(maxRows, len(all))]
}

func rowOf(l *proxy.SeenLock, now time.Time) Lock {
	row := Lock{
		Key: shown(l.Key), Database: l.DB, User: l.User, Holder: holderUnknown, Held: -1, LeaseLeft: -1,
		Waiters: l.Waiters, Fair: l.Fair, Waiting: ago(l.Oldest, now),
	}
	switch {
	case len(l.Key) > longestShown:
		row.KeyBytes = len(l.Key)
	case !utf8.ValidString(l.Key):
		row.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(l.Key))
	}
	if l.Held {
		row.Holder, row.Client, row.Name = holderHere, l.Client.Addr, shown(l.Client.Name)
		row.Held, row.LeaseLeft, row.Renewal = ago(l.Since, now), l.TTL.Seconds(), renewed
		switch {
		case l.Fixed:
			row.Renewal = fixed
		case l.Late:
			row.Renewal = late
		}
		row.Holds, row.Fence = l.Holds, l.Fence
		row.Mode, row.Limit, row.Note = l.Mode, int64(l.Limit), shown(l.Note)
	}
	return row
}

// ago is how long ago a moment was, in seconds; -1: it is the zero time.
func ago(t, now time.Time) float64 {
	if t.IsZero() {
		return -1
	}
	return max(0, now.Sub(t).Round(time.Millisecond).Seconds())
}

// askers bounds the questions that are on their way to Redis together.
const askers = 8

// askHolders asks Redis for the holders that are not here.
func (s *Source) askHolders(ctx context.Context, page []proxy.SeenLock, rows []Lock) {
	var all errgroup.Group
	all.SetLimit(askers)
	for i := range page {
		if !page[i].Held && ctx.Err() == nil {
			all.Go(func() error {
				s.askHolder(ctx, &page[i], &rows[i])
				return nil
			})
		}
	}
	_ = all.Wait() // none fails
}

func (s *Source) askHolder(ctx context.Context, l *proxy.SeenLock, row *Lock) {
	d, err := s.Describe(ctx, l)
	switch {
	case err != nil:
		return
	case len(d.Holders) == 0:
		row.Holder = holderNone
		return
	}
	h := d.Holders[0]
	row.Fence, row.Holds, row.Mode, row.Limit, row.Holders = h.Fence, h.Holds, d.Mode, d.Limit, len(d.Holders)
	row.Note = shown(h.Note)
	if held := script.HeldFor(h.Fence, d.Now); held >= 0 {
		row.Held = held.Round(time.Millisecond).Seconds()
	}
	if h.PTTL >= 0 {
		row.LeaseLeft = h.PTTL.Seconds()
	}
	switch process, ok := processOf(h.Owner); {
	case !ok:
		row.Holder = holderNamed
	case process == s.UUID:
		row.Holder = holderGone
	default:
		row.Holder, row.Process = holderElsewhere, process
	}
}

// processOf is the first part of an owner that a proxy, or Redisson, has named: a UUID.
func processOf(owner string) (string, bool) {
	process, rest, ok := strings.Cut(owner, ":")
	if !ok || rest == "" || len(process) != 36 || strings.Trim(process, "0123456789abcdef-") != "" {
		return "", false
	}
	return process, true
}
