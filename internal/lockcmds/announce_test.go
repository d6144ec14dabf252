package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

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

func (r *announceNode) Publish(_ context.Context, messages []redislink.Message) error {
	for _, m := range messages {
		r.published = append(r.published, m.Channel+" "+m.Text)
	}
	return r.err
}

func TestLossesAreToldInOrderAndInBatches(t *testing.T) {
	runner, redis := &laterLoss{}, &recorder{announceNode: announceNode{err: errors.New("down")}}
	a := newAnnouncer(announceOptions{Jobs: runner, Redis: redis, Life: t.Context(), Logger: zap.NewNop()})
	const many = 2*mostMessages + 3
	var pushed, published []string
	for n := range many {
		a.Tell(lossReport{Key: fmt.Sprint("k", n), Fence: int64(n), Reason: "gone", Push: func(push []byte) {
			if n == 7 { // while the job runs
				a.Tell(lossReport{Key: "late", Reason: "gone", Push: func([]byte) { pushed = append(pushed, "late") }})
			}
			pushed = append(pushed, string(push))
		}})
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
		p.e.losses.Tell(lossReport{Key: "k", Reason: "gone", Push: func([]byte) {}})
	}
	entries := func() []observer.LoggedEntry { return logs.FilterMessage("lease lost").All() }
	redistest.Eventually(t, patience, "all that is told at once", func() bool { return len(entries()) == entriesMost && p.e.losses.told() })
	if err := p.e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.e.done // before the period of the summary ends
	if all := entries(); len(all) != entriesMost+1 || all[entriesMost].ContextMap()["repeated"] != int64(3) {
		t.Errorf("%d entries", len(all))
	}
}

func (a *announcer) told() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.busy
}
