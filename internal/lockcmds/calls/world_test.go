package calls

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/clock"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// world is calls without I/O: the test answers the scripts, and time passes when there is nothing else to do. It implements clock.Clock,
// jobs.Runner and redislink.Topology.
type world struct {
	redislink.Topology
	*Calls

	now   time.Time
	tasks []func()
	own   *node
}

// node is one connection of the engine to Redis.
type node struct {
	redislink.Node
	answers []any      // to the next scripts: a resp.Value or an error; without one, the answer to each script is lost
	asked   [][]string // the arguments of the scripts
}

func newWorld(t *testing.T) *world {
	w := &world{now: time.Unix(1000, 0), own: &node{}}
	w.Calls = New(Options{Own: Own{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop(), Lease: 30 * time.Second})
	return w
}

func (w *world) Node(string) redislink.Node                  { return w.own }
func (w *world) Servers() (s script.Servers)                 { return s }
func (w *world) Now() time.Time                              { return w.now }
func (w *world) Random(time.Duration) time.Duration          { return 0 }
func (w *world) Submit(_ jobs.Class, task func())            { w.tasks = append(w.tasks, task) }
func (w *world) Wait(context.Context)                        {}
func (w *world) AfterFunc(time.Duration, func()) clock.Timer { panic("not of interest") }

// After runs the task behind those that are there.
func (w *world) After(d time.Duration, c jobs.Class, task func()) clock.Timer {
	w.Submit(c, func() {
		w.now = w.now.Add(d)
		task()
	})
	return nil
}

// work runs all tasks.
func (w *world) work() {
	for len(w.tasks) > 0 {
		task := w.tasks[0]
		w.tasks = w.tasks[1:]
		task()
	}
}

// Eval implements redislink.Node.
func (n *node) Eval(_ context.Context, _ redislink.Script, _, args []string) (resp.Value, error) {
	n.asked = append(n.asked, args)
	if len(n.answers) == 0 {
		return resp.Value{}, contract.ErrInDoubt
	}
	next := n.answers[0]
	n.answers = n.answers[1:]
	if err, ok := next.(error); ok {
		return resp.Value{}, err
	}
	return next.(resp.Value), nil
}

func number(n int64) resp.Value {
	return resp.Value{Kind: resp.Array, Elems: []resp.Value{{Kind: resp.Integer, Int: n}}}
}

func refusal(text string) resp.Value { return resp.Value{Kind: resp.SimpleError, Str: []byte(text)} }
