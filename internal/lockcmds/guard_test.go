package lockcmds

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
)

// ends counts the ends of the process, which goes on instead.
type ends int

func (e *ends) OnWrite(*zapcore.CheckedEntry, []zapcore.Field) { *e++ }

func newGuard() (g Guard, ended *ends, logged *observer.ObservedLogs) {
	ended = new(ends)
	core, logged := observer.New(zap.DebugLevel)
	return Guard{Log: zap.New(core, zap.WithFatalHook(ended))}, ended, logged
}

// failstopSession recovers from panics, as sessions do. It counts these.
type failstopSession struct {
	contract.Session
	over      bool
	later     []func()
	recovered int
}

func (s *failstopSession) call(f func()) {
	defer func() {
		if recover() != nil {
			s.recovered++
		}
	}()
	f()
}

func (s *failstopSession) Do(f func()) bool {
	if !s.over {
		s.call(f)
	}
	return !s.over
}

func (s *failstopSession) AfterUnlock(f func()) { s.later = append(s.later, f) }

func (s *failstopSession) unlock() {
	for _, f := range s.later {
		s.call(f)
	}
	s.later = nil
}

func broken() { panic("broken") }

func TestAPanicEndsTheProcessOnEveryWay(t *testing.T) {
	ways := map[string]func(Guard, *failstopSession){
		"a function of the engine": func(g Guard, s *failstopSession) {
			s.call(func() {
				defer g.Stop()
				broken()
			})
		},
		"under the session lock": func(g Guard, s *failstopSession) { g.Do(s, broken) },
		"after the session lock": func(g Guard, s *failstopSession) {
			g.AfterUnlock(s, broken)
			s.unlock()
		},
		"what a pool has recovered": func(g Guard, _ *failstopSession) { g.Crash("broken") },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			g, ended, logged := newGuard()
			s := &failstopSession{}
			way(g, s)
			if *ended != 1 || s.recovered != 0 {
				t.Fatalf("the process was ended %d times, and a session recovered %d times", *ended, s.recovered)
			}
			fields := logged.All()[0].ContextMap()
			stack, _ := fields["stack"].(string)
			if fields["panic"] != "broken" || !strings.Contains(stack, "guard_test.go") {
				t.Errorf("the log lacks the panic or its stack: %v", fields)
			}
		})
	}
}

func TestWithoutAPanicNothingEnds(t *testing.T) {
	g, ended, logged := newGuard()
	s := &failstopSession{}
	runs := 0
	run := func() { runs++ }
	func() {
		defer g.Stop()
		run()
	}()
	if !g.Do(s, run) || runs != 2 {
		t.Errorf("the session lives, and %d of 2 functions have run", runs)
	}
	g.AfterUnlock(s, run)
	if runs != 2 {
		t.Error("a function for later has run under the session lock")
	}
	s.unlock()
	if runs != 3 {
		t.Error("a function for later has not run")
	}
	s.over = true
	if g.Do(s, run) || runs != 3 {
		t.Error("a function has run in a session that has ended")
	}
	if *ended != 0 || logged.Len() != 0 {
		t.Errorf("the process was ended %d times, with %v", *ended, logged.All())
	}
}
