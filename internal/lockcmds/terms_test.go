package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

func TestOptionsGoBeforeDefaults(t *testing.T) {
	grace := 2 * time.Second
	d := Defaults{Lease: 30 * time.Second, Grace: &grace, MaxHold: time.Minute, Sync: SyncAll}
	for name, c := range map[string]struct {
		cmd  grammar.Command
		want acquireTerms
	}{
		"nothing is set": {
			grammar.Command{Verb: grammar.Lock, Wait: -1, MaxHold: -1, Grace: -1, Sync: -1},
			acquireTerms{Verb: grammar.Lock, Lease: 30 * time.Second, MaxHold: time.Minute, Grace: grace, Wait: -1, Sync: SyncAll},
		},
		"all is set": {
			grammar.Command{Verb: grammar.TryLock, Lease: 40 * time.Second, MaxHold: 50 * time.Second, Grace: 0, Sync: 0},
			acquireTerms{Verb: grammar.TryLock, Lease: 40 * time.Second, MaxHold: 50 * time.Second, Fixed: true, Chosen: true},
		},
		"a fixed lease is longer than the default limit of renewals": {
			grammar.Command{Verb: grammar.Lock, Lease: time.Hour, MaxHold: -1, Sync: 1},
			acquireTerms{Verb: grammar.Lock, Lease: time.Hour, Sync: 1, Fixed: true, Chosen: true},
		},
		"MAXHOLD ends before a fixed lease": {
			grammar.Command{Verb: grammar.Lock, Lease: time.Hour, MaxHold: time.Second, Sync: 1},
			acquireTerms{Verb: grammar.Lock, Lease: time.Second, MaxHold: time.Second, Sync: 1, Fixed: true, Chosen: true},
		},
		"MAXHOLD ends before the lease": {
			grammar.Command{Verb: grammar.Lock, MaxHold: time.Second, Sync: 1},
			acquireTerms{Verb: grammar.Lock, Lease: time.Second, MaxHold: time.Second, Sync: 1, Chosen: true},
		},
	} {
		if got := termsOf(&c.cmd, &d); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTheTimeLeftToWait(t *testing.T) {
	for _, c := range []struct {
		wait, waited time.Duration
		want         bool
	}{{-1, time.Hour, true}, {0, 0, false}, {2, 1, true}, {2, 2, false}} {
		if got := (&acquireTerms{Wait: c.wait}).MayWait(c.waited); got != c.want {
			t.Errorf("%v of %v: %t", c.waited, c.wait, got)
		}
	}
}

func TestReplicasHaveAsMuchTimeAsTheClientAndTheLeaseLeave(t *testing.T) {
	began := time.Unix(1000, 0)
	now := began.Add(2 * time.Second)
	for name, c := range map[string]struct {
		terms   acquireTerms
		want    time.Duration
		deepens bool
	}{
		"without a limit":    {terms: acquireTerms{Wait: -1, Lease: time.Minute}, want: syncMost},
		"TRYLOCK":            {terms: acquireTerms{Wait: 0, Lease: time.Minute}, want: syncLeast},
		"half a second left": {terms: acquireTerms{Wait: 2500 * time.Millisecond, Lease: time.Minute}, want: 500 * time.Millisecond},
		"a short lease":      {terms: acquireTerms{Wait: -1, Lease: 200 * time.Millisecond}, want: 100 * time.Millisecond},
		"a re-entry":         {terms: acquireTerms{Wait: -1, Lease: time.Minute}, want: syncMost, deepens: true},
		"a short re-entry":   {terms: acquireTerms{Wait: -1, Lease: time.Second}, want: 400 * time.Millisecond, deepens: true},
	} {
		if got := c.terms.ConfirmUntil(now, began, now.Add(-100*time.Millisecond), c.deepens).Sub(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
