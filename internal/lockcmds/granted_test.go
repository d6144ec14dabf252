package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

// The answers of drop: the grant goes on, and the owner does not hold the lock by it.
var goesOn, isGone = locktest.Numbers(2), locktest.Numbers(0)

func TestAnAcquireWritesTheHoldsThatTheSessionHasThen(t *testing.T) {
	w, a, b := newLockWorld(t), newClient(1), newClient(2)
	for _, owner := range []string{"", "me"} {
		first := w.asksFor(&a.caller, lock, owner)
		if p := first.Part(); p.Fence != 0 || p.Holds != 1 || (p.Session != "") != (owner != "") || first.Deepens() {
			t.Errorf("%q: the first acquire writes %+v", owner, p)
		}
		first.notDeepened()
		w.acquire(t, a, owner, nil)
		again := w.asksFor(&a.caller, lock, owner)
		if p := again.Part(); p.Fence != fence || p.Holds != 2 || !again.Deepens() {
			t.Errorf("%q: a re-entry writes %+v", owner, p)
		}
		again.anew()
		if p := again.Part(); p.Fence != 0 || p.Holds != 1 || again.Deepens() {
			t.Errorf("%q: a new call of the re-entry writes %+v", owner, p)
		}
	}
	other := w.asksFor(&b.caller, lock, "me")
	if p := other.Part(); p.Fence != 0 || p.Holds != 1 || !other.Deepens() {
		t.Errorf("another session of the owner writes %+v", p)
	}
	other.notDeepened()
}

func TestAGrantThatCannotBeUsedIsNotRecorded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *lockWorld, a *testClient, ask *acquire) // before the answer
		want table.Verdict
		held bool // afterwards
	}{
		{"in time", func(*lockWorld, *testClient, *acquire) {}, table.Usable, true},
		{"its lease has passed", func(w *lockWorld, _ *testClient, _ *acquire) { w.Time = w.Time.Add(30 * time.Second) }, table.TooLate, true},
		{"its session has ended", func(w *lockWorld, a *testClient, _ *acquire) { w.Ended(a.caller.ID) }, table.ClientGone, false},
		{"its session was told of a loss", func(w *lockWorld, _ *testClient, ask *acquire) { w.force(ask.Key, fence) }, table.ToldLost, false},
		{"and another session has the grant", func(w *lockWorld, _ *testClient, ask *acquire) {
			w.force(ask.Key, fence)
			w.acquire(t, newClient(2), ask.Key.Owner, nil)
		}, table.ToldLost, true},
	} {
		for _, owner := range []string{"", "me"} {
			w, a := newLockWorld(t), newClient(1)
			w.acquire(t, a, owner, nil)
			ask := w.asksFor(&a.caller, lock, owner)
			g := table.Grant{Fence: fence, Count: 2, SentAt: w.Time, TTL: 30 * time.Second, Grace: -1}
			c.end(w, a, ask)
			if got := ask.records(w.Time, &g); got != c.want {
				t.Errorf("%s, owner %q: verdict %d, want %d", c.name, owner, got, c.want)
			}
			if h := w.table.Hold(ask.Key); (h != nil) != c.held || h != nil && (h.Count == 2) != (c.want == table.Usable) {
				t.Errorf("%s, owner %q: %+v", c.name, owner, h)
			}
		}
	}
}

// The client may count on the holds of which it was told, although its connection has ended.
func TestARollbackOfAReentryLeavesTheHoldsOfASessionThatHasEnded(t *testing.T) {
	for _, grant := range []int64{0, fence, fence + 1} {
		for grace, want := range map[time.Duration]string{-1: "50000", 0: "0", time.Second: "1000"} {
			w, a := newLockWorld(t), newClient(1)
			w.acquire(t, a, "", func(g *table.Grant) { g.Fixed, g.TTL, g.Grace = true, time.Minute, grace })
			ask := w.asksFor(&a.caller, lock, "")
			w.Own.Answers = []any{goesOn, goesOn}
			w.Ended(a.caller.ID)
			w.Work()
			sent := len(w.Own.Args)
			w.pass(t, 10*time.Second)
			ask.rollBack(grant, 1, nil)
			w.Work()
			if grant == fence+1 { // it is not the grant of these holds
				want = "0"
			}
			if args := w.Own.Args[sent]; args[argKeep] != want {
				t.Errorf("fence %d, GRACE %v: rolled back with %q", grant, grace, args)
			}
		}
	}
}

// What an acquire for a named owner has made is ended by its name. What it has added to a grant of others is released once, if it
// is known to be there, and else ends with the lease.
func TestARollbackForANamedOwner(t *testing.T) {
	for name, c := range map[string]struct {
		reenters     bool
		fence, count int64
		want         string
	}{
		"it has made the grant":         {false, fence, 1, "drop"},
		"it may have made a grant":      {false, 0, 0, "drop"},
		"it has joined others":          {false, fence, 2, "release"},
		"it has acquired again":         {true, fence, 2, "release"},
		"it may have acquired again":    {true, 0, 0, ""},
		"it has begun anew with a loss": {true, fence + 1, 1, "drop"},
	} {
		w, a := newLockWorld(t), newClient(1)
		if c.reenters {
			w.acquire(t, a, "me", nil)
		}
		ask := w.asksFor(&a.caller, lock, "me")
		own := ask.Name
		w.Own.Asked = nil
		ended := false
		w.Own.Answers = []any{locktest.Numbers(1)}
		ask.rollBack(c.fence, c.count, func(bool) { ended = true })
		w.Work()
		if got := strings.Join(w.Own.Asked, " "); got != c.want || !ended {
			t.Fatalf("%s: %s, ended: %v", name, got, ended)
		}
		ask.rollBack(c.fence, c.count, nil) // the session has ended, and replicas have answered behind that
		w.Work()
		if c.want == "release" && len(w.Own.Asked) != 1 {
			t.Errorf("%s: rolled back twice, it asks %q", name, w.Own.Asked)
		}
		if c.want == "drop" && w.Own.Args[0][argName] != own {
			t.Errorf("%s: dropped with %q, not %s", name, w.Own.Args[0], own)
		}
	}
}

// A rollback makes the lease no longer than MAXHOLD allows.
func TestARollbackKeepsMaxHold(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	w.acquire(t, a, "", func(g *table.Grant) { g.MaxHold = 40 * time.Second })
	w.Pass(20 * time.Second)
	ask := w.asksFor(&a.caller, lock, "")
	ask.rollBack(fence, 1, nil)
	w.Work()
	const argHolds, argLease = 3, 4 // of release
	if args := w.Own.Args[0]; args[argHolds] != "1" || args[argLease] != "20000" {
		t.Errorf("rolled back with %q", args)
	}
}

func (c *testClient) session(w *lockWorld) *clientSession { return w.sessions[c.caller.ID] }

func TestAKeyThatWasOverwrittenIsALossOnce(t *testing.T) {
	for _, told := range []bool{false, true} { // by a push, before
		w, a := newLockWorld(t), newClient(1)
		h := w.acquire(t, a, "", nil)
		if told {
			w.force(h.Key, fence)
		}
		for i, want := range []bool{true, false} {
			ask := w.asksFor(&a.caller, lock, "")
			if got := ask.overwritten(); got != want {
				t.Errorf("%d: lost: %v", i, got)
			}
			ask.notDeepened()
		}
		w.Work()
		if (len(a.Pushes) == 1) != told || len(w.lost) != 1 {
			t.Errorf("told %q, losses %q", a.Pushes, w.lost)
		}
	}
}
