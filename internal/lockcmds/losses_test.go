package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// What our clock says is lost, and Redis may have left, is dropped. What Redis says is gone needs no drop.
func TestALossIsToldOnceAndTheRestIsDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *table.Grant)
		redis  any // the answer to a renewal
		reason string
		drops  bool
	}{
		{"no renewal succeeds", nil, nil, "deadline", true},
		{"a fixed lease", func(g *table.Grant) { g.Fixed = true }, nil, "expired", true},
		{"a limit", func(g *table.Grant) { g.MaxHold = 5 * time.Second }, nil, "max-hold", true},
		{"Redis does not have it", nil, isGone, "gone", false},
	} {
		w, a, b := newLockWorld(t), newClient(1), newClient(2)
		w.acquire(t, a, "me", c.change)
		h := w.acquire(t, b, "me", func(g *table.Grant) {
			g.Count = 2
			if c.change != nil {
				c.change(g)
			}
		})
		for range 12 {
			w.Own.Answers = nil
			if c.redis != nil {
				w.Own.Answers = []any{c.redis}
			}
			w.pass(t, 3*time.Second)
		}
		fields := map[string]bool{}
		for i, name := range w.Own.Asked {
			if args := w.Own.Args[i]; name == "drop" && args[argFence] == strconv.Itoa(fence) && args[argKeep] == "0" {
				fields[args[argName]] = true
			}
		}
		if got := strings.Join(w.lost, " "); got != c.reason || c.drops && len(fields) != 2 || !c.drops && len(fields) > 0 {
			t.Errorf("%s: losses %q, the parts of %d sessions are dropped", c.name, got, len(fields))
		}
		for _, s := range []*testClient{a, b} {
			if len(s.Pushes) != 1 || !strings.Contains(s.Pushes[0], " "+c.reason+"]") {
				t.Errorf("%s: told %q", c.name, s.Pushes)
			}
		}
		if w.table.Knows(h) || w.Holds() != 0 {
			t.Errorf("%s: the hold goes on", c.name)
		}
	}
}

// A client that takes locks with long names and loses them could have any number of rollbacks wait for a Redis that is
// away.
func TestARollbackOfALossCountsAsMemoryOfItsSession(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	var memory atomic.Int64
	a.caller.Memory = &memory
	h := w.acquire(t, a, "", func(g *table.Grant) { g.Fixed = true })
	w.loses(h, "expired")
	for range 3 {
		if got := memory.Load(); got != int64(len(lock)) {
			t.Fatalf("%d bytes while Redis does not answer", got)
		}
		w.pass(t, 3*time.Second)
	}
	w.Own.Answers = []any{resp.Value{Kind: ':'}}
	w.pass(t, 10*time.Second)
	if got := memory.Load(); got != 0 {
		t.Errorf("%d bytes after the rollback; asked %q", got, w.Own.Asked)
	}
}

// laterLoss keeps the jobs until the test runs them.
type laterLoss struct {
	jobs.Runner
	tasks []func()
}

func (l *laterLoss) Submit(_ jobs.Class, task func()) { l.tasks = append(l.tasks, task) }

func (l *laterLoss) run() {
	for len(l.tasks) > 0 {
		task := l.tasks[0]
		l.tasks = l.tasks[1:]
		task()
	}
}

// recorder is a Redis that notes what is published.
type recorder struct {
	redislink.Topology
	announceNode
}

type announceNode struct {
	redislink.Node
	published []string
	err       error
}

func (r *recorder) Node(string) redislink.Node { return &r.announceNode }

func (r *recorder) Servers() script.Servers { return script.Servers{} }

func (r *announceNode) Eval(_ context.Context, _ redislink.Script, _, args []string) (resp.Value, error) {
	for message := range slices.Chunk(args, 2) {
		r.published = append(r.published, strings.Join(message, " "))
	}
	return resp.Value{}, r.err
}

// pushed is a session that takes pushes.
type pushed struct {
	contract.Session
	take func(push []byte)
}

func (p pushed) Do(f func()) bool {
	f()
	return true
}

func (p pushed) Push(b []byte) { p.take(b) }

// lossOf is a loss of one session.
func lossOf(key string, fence int64, push func([]byte)) lossReport {
	s := &table.Session{Tag: &clientSession{Conn: pushed{take: push}}}
	return lossReport{Loss: &table.Loss{Key: table.Key{Lock: key}, Fence: fence, Reason: table.ReasonGone, To: []*table.Session{s}}}
}

func TestLossesAreToldInOrderAndInBatches(t *testing.T) {
	runner, redis := &laterLoss{}, &recorder{announceNode: announceNode{err: errors.New("down")}}
	a := &announcer{jobs: runner, client: scriptRunner{redis}, life: t.Context(), logger: zap.NewNop(), entries: logging.NewRepeats(zap.NewNop(), 1, time.Hour)}
	const many = 2*mostMessages + 3
	var pushed, published []string
	for n := range many {
		a.Tell(lossOf(fmt.Sprint("k", n), int64(n), func(push []byte) {
			if n == 7 { // while the job runs
				a.Tell(lossOf("late", 0, func([]byte) { pushed = append(pushed, "late") }))
			}
			pushed = append(pushed, string(push))
		}))
		published = append(published, fmt.Sprintf("lockproxy:lost:{k%d} %d gone", n, n))
	}
	if len(runner.tasks) != 1 {
		t.Fatalf("%d jobs begin", len(runner.tasks))
	}
	runner.run()
	if len(pushed) != many+1 || pushed[many] != "late" || pushed[5] != ">4\r\n$9\r\nlock-lost\r\n$2\r\nk5\r\n:5\r\n$4\r\ngone\r\n" {
		t.Errorf("%d pushes, the sixth is %q", len(pushed), pushed[5])
	}
	if !slices.Equal(redis.published, append(published, "lockproxy:lost:{late} 0 gone")) {
		t.Errorf("published %q", redis.published)
	}
	if a.busy || a.list != nil {
		t.Error("the announcer keeps what it has told")
	}
}

func TestTheEndOfAnEngineWritesTheSummaryOfItsLosses(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	p := startProxy(t, redistest.Start(t), func(o *Options) { o.Logger = zap.New(core) })
	for range entriesMost + 3 {
		p.e.losses.Tell(lossOf("k", 1, func([]byte) {}))
	}
	entries := func() []observer.LoggedEntry { return logs.FilterMessage("lease lost").All() }
	redistest.Eventually(t, patience, "all that is told at once", func() bool { return len(entries()) == entriesMost && p.e.losses.told() })
	if err := p.e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, p.e.done, "the end of Run") // before the period of the summary ends
	if all := entries(); len(all) != entriesMost+1 || all[entriesMost].ContextMap()["repeated"] != int64(3) {
		t.Errorf("%d entries", len(all))
	}
}

func (a *announcer) told() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.busy
}

func TestDamageIsCountedAlwaysAndLoggedForAWhile(t *testing.T) {
	core, entries := observer.New(zap.WarnLevel)
	w, repaired := newLockWorld(t), 0
	w.entries, w.opts.Events.Repaired = logging.NewRepeats(zap.New(core), 1, time.Hour), func() { repaired++ }
	w.noteDamage("k", script.NoDamage)
	for range 3 {
		w.noteDamage("k", script.CounterReplaced)
		w.noteDamage("k", script.NoQueue)
	}
	if repaired != 3 || entries.Len() != 2 {
		t.Errorf("%d repaired, %d entries", repaired, entries.Len())
	}
	for _, e := range entries.All() {
		if e.ContextMap()["key"] != "k" {
			t.Errorf("%s: %v", e.Message, e.ContextMap())
		}
	}
}

// Redis has said that a grant is over. That may be a release through another proxy, whose message is on its way.
func TestALossWaitsForTheMessagesThatMayExplainIt(t *testing.T) {
	released := func(w *lockWorld, h *table.Hold) {
		m := script.Forced{Owner: h.Owner, Fence: h.Fence, Handle: true}
		listener{&w.keeper}.Published(script.ForcedChannel, m.Message(lock))
	}
	for name, c := range map[string]struct {
		then func(w *lockWorld, h *table.Hold)
		want int // losses
	}{
		"the message comes before all messages are in": {func(w *lockWorld, h *table.Hold) { released(w, h); w.confirm() }, 0},
		"all messages are in":                          {func(w *lockWorld, _ *table.Hold) { w.confirm() }, 1},
		"Redis refuses the channel": {func(w *lockWorld, _ *table.Hold) {
			listener{&w.keeper}.Refused(script.ForcedChannel, "NOPERM no")
		}, 1},
		"the connection is broken": {func(w *lockWorld, _ *table.Hold) { w.Pass(hearLimit) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLockWorld(t)
			h := w.acquire(t, newClient(1), "", nil)
			w.onGone(h)
			w.Pass(time.Second / 5) // as long as a message may take that is not held up
			if len(w.lost) > 0 || !slices.Equal(w.Wanted, []string{script.ForcedChannel}) {
				t.Fatalf("lost %v, subscribed to %v", w.lost, w.Wanted)
			}
			c.then(w, h)
			if len(w.lost) != c.want {
				t.Errorf("lost %v", w.lost)
			}
		})
	}
}

// onGone is Redis's answer that a grant is over.
func (w *lockWorld) onGone(h *table.Hold) { w.step(func(t *table.Table) { t.Gone(h) }) }

// A message of another tenant may be faster than the one that proves that the grant was released by its handle.
func TestAMessageWithoutProofBeforeTheProof(t *testing.T) {
	for _, proof := range []bool{true, false} {
		w := newLockWorld(t)
		h := w.acquire(t, newClient(1), "", nil)
		say := func(handle bool) {
			m := script.Forced{Owner: h.Owner, Fence: h.Fence, Handle: handle}
			listener{&w.keeper}.Published(script.ForcedChannel, m.Message(lock))
		}
		say(false)
		if proof {
			say(true)
		}
		w.Own.Answers = []any{resp.Value{Kind: resp.Null, Null: true}}
		if w.Work(); len(w.lost) != 0 != !proof {
			t.Errorf("proof %v: lost %v", proof, w.lost)
		}
	}
}
