package waiters

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/announce"
	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/clock"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/damage"
	"github.com/lockproxy/lockproxy/internal/lockcmds/endings"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/holds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/losses"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/slowlog"
	"github.com/lockproxy/lockproxy/internal/lockcmds/terms"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// world is the waiters of one engine without any I/O: the test answers the scripts, runs the jobs and moves the clock. It implements
// clock.Clock, jobs.Runner and redislink.Topology.
type world struct {
	redislink.Topology
	node *node

	t       *testing.T
	x       *Waiters
	holds   *holds.Holds
	limits  terms.Defaults
	now     time.Time
	timers  []*timer
	jobs    []func()
	answers []any    // to the scripts on the engine's own connection: a resp.Value or an error
	asked   []string // scripts that were run there
	wanted  []string // channels
}

// node is the world's Redis.
type node struct {
	redislink.Node
	w *world
}

// Node implements redislink.Topology.
func (w *world) Node(string) redislink.Node { return w.node }

type timer struct {
	at      time.Time
	f       func()
	stopped bool
}

func (t *timer) Stop() bool {
	was := t.stopped
	t.stopped = true
	return !was
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1000, 0), limits: terms.Defaults{Lease: 30 * time.Second}}
	w.node = &node{w: w}
	c := calls.New(calls.Options{Own: calls.Own{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop()})
	dog, err := watchdog.New(watchdog.Options{
		Renew: c.Own.Renew, Submit: func(f func()) error { w.Submit(jobs.Renewal, f); return nil }, Now: w.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := slowlog.New(slowlog.NewBudget(100), func() slowlog.Settings { return w.limits.Slow })
	w.holds = holds.New(holds.Options{
		Told: endings.Observers{slow}, Calls: c, Watchdog: dog, UUID: "u", Lease: 30 * time.Second, Requests: new(atomic.Int64),
		Announce: announce.New(announce.Options{Jobs: w, Redis: w, Life: t.Context(), Logger: zap.NewNop()}),
	})
	w.x = New(Options{
		Calls: c, Holds: w.holds, Damage: &damage.Reporter{Clock: w, Logger: zap.NewNop(), Servers: w.Servers}, UUID: "u", Lease: 30 * time.Second,
		Defaults: func() terms.Defaults { return w.limits }, FairWait: 300 * time.Second, StaleHead: 8 * time.Second, Waiting: new(atomic.Int64), Told: endings.Observers{slow},
	})
	return w
}

func (w *world) Now() time.Time                     { return w.now }
func (w *world) Random(time.Duration) time.Duration { return 0 }
func (w *world) Submit(_ jobs.Class, f func())      { w.jobs = append(w.jobs, f) }
func (w *world) Wait(context.Context)               {}
func (w *world) Servers() (s script.Servers)        { return s }
func (n *node) Subscribe(channel string)            { n.w.wanted = append(n.w.wanted, channel) }
func (n *node) Unsubscribe(string)                  {}
func (w *world) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &timer{at: w.now.Add(d), f: f}
	w.timers = append(w.timers, t)
	return t
}

func (w *world) After(d time.Duration, c jobs.Class, f func()) clock.Timer {
	return w.AfterFunc(d, func() { w.Submit(c, f) })
}

// Eval implements redislink.Node by the next of the answers.
func (n *node) Eval(_ context.Context, s redislink.Script, _, _ []string) (resp.Value, error) {
	name := "script"
	if named, ok := s.(*script.Script); ok {
		name = named.Name()
	}
	n.w.asked = append(n.w.asked, name)
	if len(n.w.answers) == 0 {
		return resp.Value{}, contract.ErrInDoubt
	}
	next := n.w.answers[0]
	n.w.answers = n.w.answers[1:]
	if err, ok := next.(error); ok {
		return resp.Value{}, err
	}
	return next.(resp.Value), nil
}

// work runs the jobs that are there, and those that they submit.
func (w *world) work() {
	for len(w.jobs) > 0 {
		f := w.jobs[0]
		w.jobs = w.jobs[1:]
		f()
	}
}

// pass moves the clock, timer by timer.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for {
		w.timers = slices.DeleteFunc(w.timers, func(t *timer) bool { return t.stopped })
		slices.SortStableFunc(w.timers, func(a, b *timer) int { return a.at.Compare(b.at) })
		if len(w.timers) == 0 || w.timers[0].at.After(end) {
			break
		}
		t := w.timers[0]
		w.now, t.stopped = t.at, true
		t.f()
		w.work()
	}
	w.now = end
}

// confirm confirms all channels that are wanted.
func (w *world) confirm() {
	all := w.wanted
	w.wanted = nil
	for _, channel := range all {
		w.x.Confirmed(channel)
	}
	w.work()
}

// client is one session. The test answers its scripts.
type client struct {
	w       *world
	id      uint64
	sent    []contract.Call
	replies []string
	ended   bool
	later   []func()
}

func (w *world) client(id uint64) *client { return &client{w: w, id: id} }

func (c *client) Do(f func()) bool {
	if c.ended {
		return false
	}
	f()
	c.unlock()
	return true
}

func (c *client) unlock() {
	later := c.later
	c.later = nil
	for _, f := range later {
		f()
	}
}

func (c *client) AfterUnlock(f func())      { c.later = append(c.later, f) }
func (c *client) Script(call contract.Call) { c.sent = append(c.sent, call) }
func (c *client) Push([]byte)               {}
func (c *client) Reply(reply []byte)        { c.replies = append(c.replies, locktest.Show(reply)) }

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
	c.unlock()
}

// answered answers the oldest script on the session's own connection.
func (c *client) answered(v resp.Value, err error) {
	c.w.t.Helper()
	if len(c.sent) == 0 {
		c.w.t.Fatal("no script is on its way")
	}
	call := c.sent[0]
	c.sent = c.sent[1:]
	if reply := call.For.Done(v, err); reply != nil {
		c.Reply(reply)
	}
	c.unlock()
	c.w.work()
}

// got checks the replies so far.
func (c *client) got(want ...string) {
	c.w.t.Helper()
	if got, want := strings.Join(c.replies, ", "), strings.Join(want, ", "); got != want {
		c.w.t.Fatalf("session %d: replies %q, want %q", c.id, got, want)
	}
}

func numbers(list ...int64) resp.Value {
	v := resp.Value{Kind: resp.Array}
	for _, n := range list {
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Integer, Int: n})
	}
	return v
}

// grantOfFence is Redis's answer "granted", and busy is "not granted".
func grantOfFence(fence int64) resp.Value { return numbers(1, fence, 1) }

func busy(pttl time.Duration) resp.Value { return numbers(0, cmp.Or(pttl.Milliseconds(), -1)) }

// Publish implements redislink.Node.
func (n *node) Publish(context.Context, []redislink.Message) error { return nil }
