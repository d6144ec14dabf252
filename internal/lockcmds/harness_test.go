package lockcmds

import (
	"cmp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// waiterWorld is the waiters of one engine without any I/O.
type waiterWorld struct {
	*locktest.World

	t      *testing.T
	x      *waiters
	holds  *holds
	limits Defaults
}

func newWaiterWorld(t *testing.T) *waiterWorld {
	t.Helper()
	w := &waiterWorld{World: locktest.NewWorld(), t: t, limits: Defaults{Lease: 30 * time.Second}}
	c := newCalls(callOptions{Client: scriptRunner{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop()})
	dog, err := watchdog.New(watchdog.Options{
		Renew: c.Client.Renew, Submit: func(f func()) error { w.Submit(jobs.Renewal, f); return nil }, Now: w.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := observe.New(observe.NewBudget(100), func() observe.Settings { return w.limits.Slow })
	w.holds = newHolds(holdOptions{
		Told: observe.Observers{slow}, Calls: c, Watchdog: dog, UUID: "u", Lease: 30 * time.Second, Requests: new(atomic.Int64),
		Announce: newAnnouncer(announceOptions{Jobs: w, Redis: w, Life: t.Context(), Logger: zap.NewNop()}),
	})
	w.x = newWaiters(waiterOptions{
		Calls: c, Holds: w.holds, Damage: &damageReporter{Clock: w, Logger: zap.NewNop(), Servers: w.Servers}, UUID: "u", Lease: 30 * time.Second,
		Defaults: func() *Defaults { return &w.limits }, FairWait: 300 * time.Second, StaleHead: 8 * time.Second, Waiting: new(atomic.Int64), Told: observe.Observers{slow},
	})
	return w
}

// confirm confirms all channels that are wanted.
func (w *waiterWorld) confirm() {
	all := w.Wanted
	w.Wanted = nil
	for _, channel := range all {
		w.x.Confirmed(channel)
	}
	w.Work()
}

// waitingClient is one session. The test answers its scripts.
type waitingClient struct {
	locktest.Client

	w  *waiterWorld
	id uint64
}

func (w *waiterWorld) client(id uint64) *waitingClient { return &waitingClient{w: w, id: id} }

func (c *waitingClient) caller() contract.Caller {
	return contract.Caller{
		Session: c, ID: c.id, Token: string(rune('a' + c.id)), Losses: contract.NewSet(contract.NewBudget(10)), Proto: 2, NothingPending: true,
	}
}

// sends starts an acquire.
func (c *waitingClient) sends(line string) {
	c.w.t.Helper()
	cmd, err := grammar.Parse(locktest.Words(line))
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.x.Start(c.caller(), cmd, c.w.x)
	c.Unlock()
}

// answered answers the oldest script on the session's own connection.
func (c *waitingClient) answered(v resp.Value, err error) {
	c.w.t.Helper()
	if len(c.Sent) == 0 {
		c.w.t.Fatal("no script is on its way")
	}
	c.Answer(v, err)
	c.w.Work()
}

// got checks the replies so far.
func (c *waitingClient) got(want ...string) {
	c.w.t.Helper()
	if got, want := strings.Join(c.Replies, ", "), strings.Join(want, ", "); got != want {
		c.w.t.Fatalf("session %d: replies %q, want %q", c.id, got, want)
	}
}

// grantOfFence is Redis's answer "granted", and busy is "not granted".
func grantOfFence(fence int64) resp.Value { return locktest.Numbers(1, fence, 1) }

func busy(pttl time.Duration) resp.Value { return locktest.Numbers(0, cmp.Or(pttl.Milliseconds(), -1)) }
