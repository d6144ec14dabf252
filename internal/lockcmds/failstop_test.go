package lockcmds

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// exits takes the place of the end of the process.
type exits struct {
	ended chan map[string]any // the fields of the entry in the log
	leave bool                // the goroutine goes no further, and what it has locked stays locked
}

func (e exits) OnWrite(_ *zapcore.CheckedEntry, fields []zapcore.Field) {
	entry := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(entry)
	}
	e.ended <- entry.Fields
	if e.leave {
		runtime.Goexit()
	}
}

func (e exits) await(t *testing.T) {
	t.Helper()
	select {
	case entry := <-e.ended:
		if stack, _ := entry["stack"].(string); entry["panic"] == nil || !strings.Contains(stack, "failstop_test.go") {
			t.Errorf("the log lacks the panic or its stack: %v", entry)
		}
	case <-time.After(patience):
		t.Fatal("the process goes on")
	}
}

// failing is an engine whose process ends as e says. While broken is set, hand-overs panic under a mutex of the engine.
func failing(t *testing.T, srv *redistest.Server, e exits) (p *proxy, broken *atomic.Bool) {
	broken = new(atomic.Bool)
	return startProxy(t, srv, func(o *Options) {
		o.Lease = time.Minute
		o.Logger = zaptest.NewLogger(t, zaptest.WrapOptions(zap.WithFatalHook(e)))
		o.Events.HandedOver = func(time.Duration) {
			if broken.Load() {
				panic("mistake")
			}
		}
	}), broken
}

// A session recovers from its panics. One under a mutex of the engine must not end there: half of a change is left
// behind, and the leases of clients that have gone go on being renewed.
func TestAPanicUnderAMutexOfTheEngineEndsTheProcess(t *testing.T) {
	e := exits{ended: make(chan map[string]any, 10), leave: true}
	p, broken := failing(t, redistest.Start(t), e)
	holder, waiter := p.session(2), p.session(2)
	holder.fence("LOCK k")
	waiter.waits("LOCK k")
	p.awaitAttempt("k")
	broken.Store(true)
	holder.send("UNLOCK k")
	e.await(t)
	broken.Store(false) // for the end of the test
}

func TestAPanicOnAnyWayIntoTheEngineEndsTheProcess(t *testing.T) {
	e := exits{ended: make(chan map[string]any, 10)}
	p, _ := failing(t, redistest.Start(t), e)
	s := p.session(2)
	mistake := func() { panic("mistake") }
	// An engine without most of what it needs.
	halved := func() *Engine {
		return &Engine{keeper: keeper{failstop: p.e.failstop, sessions: map[uint64]*clientSession{1: {asks: &acquire{}}}}}
	}
	for where, provoke := range map[string]func(){
		"a job":       func() { p.e.jobs.Submit(jobs.Urgent, mistake) },
		"Do":          func() { p.e.failstop.Do(s, mistake) },
		"AfterUnlock": func() { s.Lock(); p.e.failstop.AfterUnlock(s, mistake); s.Unlock() },
		"Start":       func() { p.e.Start(s.Caller(), grammar.Command{}) },
		"an acquire":  func() { halved().Start(s.Caller(), grammar.Command{Verb: grammar.Lock}) },
		"Ended":       func() { halved().Ended(1) },
		"Unblock":     func() { halved().Unblock(1, true) },
		"Drain":       func() { halved().Drain() },
		"a verdict":   func() { p.e.onLost(nil, "") },
	} {
		t.Run(where, func(t *testing.T) {
			provoke()
			e.await(t)
		})
	}
}
