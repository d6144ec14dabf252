package lockcmds

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

const (
	lock  = "k"
	fence = 7
)

// lockWorld is a lock engine without I/O.
type lockWorld struct {
	*locktest.World
	*Engine

	t      *testing.T
	limits Defaults
	lost   []string // reasons
	logs   *observer.ObservedLogs
	hot    Hot
}

// NewRunner implements jobs.Source.
func (w *lockWorld) NewRunner(func(any)) jobs.Runner { return w.World }

func newLockWorld(t *testing.T) *lockWorld {
	t.Helper()
	w := &lockWorld{World: locktest.NewWorld(), t: t, limits: Defaults{Lease: 30 * time.Second}}
	var core zapcore.Core
	core, w.logs = observer.New(zap.WarnLevel)
	var err error
	w.Engine, err = New(Options{
		Redis: w.World, UUID: "u", Jobs: w, Clock: w.World, Defaults: Defaults{Lease: 30 * time.Second},
		Logger: zap.New(core), Hot: &w.hot,
		Events: Events{Lost: func(reason string) { w.lost = append(w.lost, reason) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.defaults = func() *Defaults { return &w.limits }
	return w
}

// slowOnes are the entries of the log about slow waits and holds, without the fields that are empty.
func (w *lockWorld) slowOnes() (all []string) {
	for _, e := range w.logs.TakeAll() {
		if !strings.HasPrefix(e.Message, "slow ") {
			continue
		}
		one := e.Message
		for _, f := range e.Context {
			switch {
			case f.Type == zapcore.Int64Type:
				one += fmt.Sprintf(" %s=%d", f.Key, f.Integer)
			case f.String != "":
				one += " " + f.Key + "=" + f.String
			}
		}
		all = append(all, one)
	}
	return all
}

// asksFor begins an acquire.
func (e *Engine) asksFor(s *contract.Caller, lock, owner string) *acquire {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &acquire{}
	e.newAcquireLocked(s, &grammar.Command{Key: lock, Owner: owner}, w)
	return w
}

// begin returns the record of a session, and the key of a hold.
func (e *Engine) begin(s *contract.Caller, lock, owner string) (*clientSession, table.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.beginLocked(s, &grammar.Command{Key: lock, Owner: owner})
}

// pause is what an acquire does before it is sent.
func (w *acquire) pause(lease time.Duration, send func()) (now bool) {
	w.e.step(func(t *table.Table) {
		now = w.e.pauseLocked(w.s.Conn, t.Deepening(&w.Waiter), lease, send, w.notDeepened)
	})
	return now
}

func (w *acquire) notDeepened() { w.e.step(func(t *table.Table) { t.NotDeepened(&w.Waiter) }) }

// records has Redis grant the lock to an acquire.
func (w *acquire) records(now time.Time, g *table.Grant) (v table.Verdict) {
	w.e.step(func(t *table.Table) { v = t.Granted(&w.Waiter, now, g) })
	return v
}

func (e *Engine) offer(lock, holder string, last table.Streak) (o offer) {
	e.step(func(*table.Table) { o = e.offerLocked(table.Key{Lock: lock, Owner: holder, Kind: exclusive{}}, last) })
	return o
}

func (o *offer) answered(s contract.Session, a script.Released, sentAt time.Time, err error) {
	var to *acquire
	var g grant
	o.e.step(func(*table.Table) { to, g = o.answeredLocked(a, sentAt, err) })
	o.deliver(s, to, g)
}

// force ends a hold as FORCEUNLOCK does.
func (w *lockWorld) force(k table.Key, fence int64) {
	w.Forced(k.Lock, script.Forced{Owner: k.Owner, Fence: fence})
}

// loses ends the lease of a hold, as the watchdog does.
func (w *lockWorld) loses(h *table.Hold, why watchdog.Reason) {
	h.Lease.Forget()
	w.onLost(h, why)
}

// wake has the first waiters of a lock ask, as if a message had come.
func (e *Engine) wake(lock string) { e.step(func(t *table.Table) { t.Wake(lock) }) }

// asks reports whether an acquire of the session is in progress.
func (e *Engine) asks(session uint64) bool {
	_, _, ok := e.WaitsFor(session)
	return ok
}

// noWaiter reports whether no client waits.
func (e *Engine) noWaiter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.table.Waiters() == 0
}

// testClient is a session, and what identifies it. The test answers its scripts.
type testClient struct {
	locktest.Client

	w      *lockWorld
	caller contract.Caller
}

func newClient(id uint64) *testClient {
	c := &testClient{}
	c.caller = contract.Caller{
		Session: c, ID: id, Token: string(rune('a' + id)), Losses: &contract.Losses{}, Proto: 3,
	}
	return c
}

// client is a session that sends commands.
func (w *lockWorld) client(id uint64) *testClient {
	c := newClient(id)
	c.w, c.caller.Proto, c.caller.NothingPending = w, 2, true
	return c
}

// acquire has Redis grant the lock for that owner at once; empty: the session's own.
func (w *lockWorld) acquire(t *testing.T, c *testClient, owner string, change func(g *table.Grant)) *table.Hold {
	t.Helper()
	a := w.asksFor(&c.caller, lock, owner)
	g := table.Grant{Fence: fence, Count: a.Part().Holds, SentAt: w.Time, TTL: 30 * time.Second, Grace: -1}
	if change != nil {
		change(&g)
	}
	if v := a.records(w.Time, &g); v != table.Usable {
		t.Fatalf("verdict %d", v)
	}
	return w.table.Hold(a.Key)
}

// pass moves the clock to the end of d, with the watchdog's steps.
func (w *lockWorld) pass(t *testing.T, d time.Duration) {
	w.Pass(d)
	w.Engine.Step()
	w.Work()
}

// confirm confirms all channels that are wanted.
func (w *lockWorld) confirm() {
	all := w.Wanted
	w.Wanted = nil
	for _, channel := range all {
		listener{&w.keeper}.Confirmed(channel)
	}
	w.Work()
}

// sends starts an acquire.
func (c *testClient) sends(line string) *testClient {
	c.w.t.Helper()
	cmd, err := grammar.Parse(locktest.Words(line))
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.Engine.Start(c.caller, cmd)
	c.Unlock()
	return c
}

// answered answers the oldest script on the session's own connection.
func (c *testClient) answered(v resp.Value, err error) {
	c.w.t.Helper()
	if len(c.Sent) == 0 {
		c.w.t.Fatal("no script is on its way")
	}
	c.Answer(v, err)
	c.w.Work()
}

// got checks the replies so far.
func (c *testClient) got(want ...string) {
	c.w.t.Helper()
	if got, want := strings.Join(c.Replies, ", "), strings.Join(want, ", "); got != want {
		c.w.t.Fatalf("session %d: replies %q, want %q", c.caller.ID, got, want)
	}
}

// grantOfFence is Redis's answer "granted", and busy is "not granted".
func grantOfFence(fence int64) resp.Value { return locktest.Numbers(1, fence, 1) }

func busy(pttl time.Duration) resp.Value { return locktest.Numbers(0, cmp.Or(pttl.Milliseconds(), -1)) }

// count is the number of waiters of a lock. Requires no locks.
func (e *Engine) count(lock string) (all int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, _ = e.countLocked(lock)
	return all
}

// callWorld is calls without I/O.
type callWorld struct {
	*locktest.World
	*calls
}

func newCallWorld(t *testing.T) *callWorld {
	w := locktest.NewWorld()
	return &callWorld{w, &calls{
		Client: scriptRunner{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop(),
	}}
}
