package lockcmds

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

const (
	lock  = "k"
	fence = 7
)

// holdWorld is the record of holds of one engine without I/O.
type holdWorld struct {
	*locktest.World
	*holds

	lost []string // reasons
}

func newHoldWorld(t *testing.T) *holdWorld {
	t.Helper()
	w := &holdWorld{World: locktest.NewWorld()}
	c := newCalls(callOptions{Client: scriptRunner{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop()})
	dog, err := watchdog.New(watchdog.Options{
		Renew: c.Client.Renew, Submit: func(f func()) error { w.Submit(jobs.Renewal, f); return nil }, Now: w.Now,
		OnLost: func(l *watchdog.Lease, reason watchdog.Reason) { w.Lost(l, reason) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.holds = newHolds(holdOptions{
		Calls: c, Watchdog: dog, UUID: "u", Lease: 30 * time.Second, Requests: new(atomic.Int64),
		OnLost:   func(reason string) { w.lost = append(w.lost, reason) },
		Announce: newAnnouncer(announceOptions{Jobs: w, Redis: w, Life: t.Context(), Logger: zap.NewNop()}),
	})
	return w
}

// holdClient is a session, and what identifies it.
type holdClient struct {
	locktest.Client
	caller contract.Caller
}

func newClient(id uint64) *holdClient {
	c := &holdClient{}
	c.caller = contract.Caller{
		Session: c, ID: id, Token: string(rune('a' + id)), Losses: contract.NewSet(contract.NewBudget(1000)), Proto: 3,
	}
	return c
}

// acquire has Redis grant the lock for that owner at once; empty: the session's own.
func (w *holdWorld) acquire(t *testing.T, c *holdClient, owner string, change func(g *holdGrant)) *sessionHold {
	t.Helper()
	claim := w.Claim(&c.caller, lock, owner)
	g := holdGrant{
		Grant:   table.Grant{Fence: fence, Count: claim.holds, SentAt: w.Time, TTL: 30 * time.Second, Grace: -1},
		Renewer: w.Calls.Client,
	}
	if change != nil {
		change(&g)
	}
	if v := claim.Granted(w.Time, &g); v != verdictUsable {
		t.Fatalf("verdict %d", v)
	}
	return holdOf(w.ledger.Find(claim.Key()))
}

// pass moves the clock to the end of d, with the watchdog's steps.
func (w *holdWorld) pass(t *testing.T, d time.Duration) {
	w.Pass(d)
	w.Watchdog.Step(t.Context())
	w.Work()
}
