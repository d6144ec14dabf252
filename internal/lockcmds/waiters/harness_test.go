package waiters

import (
	"cmp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/announce"
	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/damage"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/holds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/losses"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/lockcmds/terms"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// world is the waiters of one engine without any I/O.
type world struct {
	*locktest.World

	t      *testing.T
	x      *Waiters
	holds  *holds.Holds
	limits terms.Defaults
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: locktest.NewWorld(), t: t, limits: terms.Defaults{Lease: 30 * time.Second}}
	c := calls.New(calls.Options{Client: calls.Client{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop()})
	dog, err := watchdog.New(watchdog.Options{
		Renew: c.Client.Renew, Submit: func(f func()) error { w.Submit(jobs.Renewal, f); return nil }, Now: w.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := observe.New(observe.NewBudget(100), func() observe.Settings { return w.limits.Slow })
	w.holds = holds.New(holds.Options{
		Told: observe.Observers{slow}, Calls: c, Watchdog: dog, UUID: "u", Lease: 30 * time.Second, Requests: new(atomic.Int64),
		Announce: announce.New(announce.Options{Jobs: w, Redis: w, Life: t.Context(), Logger: zap.NewNop()}),
	})
	w.x = New(Options{
		Calls: c, Holds: w.holds, Damage: &damage.Reporter{Clock: w, Logger: zap.NewNop(), Servers: w.Servers}, UUID: "u", Lease: 30 * time.Second,
		Defaults: func() *terms.Defaults { return &w.limits }, FairWait: 300 * time.Second, StaleHead: 8 * time.Second, Waiting: new(atomic.Int64), Told: observe.Observers{slow},
	})
	return w
}

// confirm confirms all channels that are wanted.
func (w *world) confirm() {
	all := w.Wanted
	w.Wanted = nil
	for _, channel := range all {
		w.x.Confirmed(channel)
	}
	w.Work()
}

// client is one session. The test answers its scripts.
type client struct {
	locktest.Client

	w  *world
	id uint64
}

func (w *world) client(id uint64) *client { return &client{w: w, id: id} }

func (c *client) caller() contract.Caller {
	return contract.Caller{
		Session: c, ID: c.id, Token: string(rune('a' + c.id)), Losses: losses.NewSet(losses.NewBudget(10)), Proto: 2, NothingPending: true,
	}
}

// sends starts an acquire.
func (c *client) sends(line string) {
	c.w.t.Helper()
	cmd, err := grammar.Parse(locktest.Words(line))
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.x.Start(c.caller(), cmd, c.w.x)
	c.Unlock()
}

// answered answers the oldest script on the session's own connection.
func (c *client) answered(v resp.Value, err error) {
	c.w.t.Helper()
	if len(c.Sent) == 0 {
		c.w.t.Fatal("no script is on its way")
	}
	c.Answer(v, err)
	c.w.Work()
}

// got checks the replies so far.
func (c *client) got(want ...string) {
	c.w.t.Helper()
	if got, want := strings.Join(c.Replies, ", "), strings.Join(want, ", "); got != want {
		c.w.t.Fatalf("session %d: replies %q, want %q", c.id, got, want)
	}
}

// grantOfFence is Redis's answer "granted", and busy is "not granted".
func grantOfFence(fence int64) resp.Value { return locktest.Numbers(1, fence, 1) }

func busy(pttl time.Duration) resp.Value { return locktest.Numbers(0, cmp.Or(pttl.Milliseconds(), -1)) }
