package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// logged returns a proxy without connections, and its log.
func logged(t *testing.T) (*Proxy, *observer.ObservedLogs) {
	t.Helper()
	core, entries := observer.New(zap.DebugLevel)
	log := zap.New(core)
	p := &Proxy{Settings: Settings{Logger: log}, Source: metrics.Source{Budget: budget.New(100, nil)}, Entries: NewEntries(log)}
	t.Cleanup(p.Entries.Flush)
	return p, entries
}

// Each limit has a counter of its own, and an entry with its setting.
func TestLimitsAreCountedAndLogged(t *testing.T) {
	p, entries := logged(t)
	for reason, limit := range limitNames {
		if p.Closed(reason, "c", 7); p.Counters.Closed[reason].Load() != 1 {
			t.Errorf("%s is not counted once", limit)
		}
		found := entries.FilterMessage("limit reached: client closed").FilterField(zap.String("limit", limit)).FilterField(zap.String("client", "c")).All()
		if len(found) != 1 || found[0].Level != logging.Audit {
			t.Errorf("%s: the log has %v", limit, found)
		}
	}
	for range 2 * EntriesLogged {
		p.Closed(metrics.QueryLimit, "other", 7)
	}
	if n := entries.FilterField(zap.String("client", "other")).Len(); n >= EntriesLogged {
		t.Errorf("a flood has %d entries", n)
	}
}

// The reply names the setting that an operator would change, if there is one.
func TestTheReplyWithoutAConnectionNamesTheSetting(t *testing.T) {
	p, entries := logged(t)
	for why, want := range map[error]string{
		upstream.ErrPins: upstream.ErrPins.Error() + " (max-pins)",
		fmt.Errorf("so: %w", upstream.ErrPinShare): "so: " + upstream.ErrPinShare.Error() + " (max-pins)",
		errLogins: errLogins.Error(),
	} {
		if got := string(p.NoPinFree(why, "c")); got != "-OVERLOADED "+want+", nothing was sent\r\n" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for limit, n := range map[string]int{"max-pins": 2, "logins": 1} {
		if got := entries.FilterField(zap.String("limit", limit)).Len(); got != n {
			t.Errorf("%s: %d entries, want %d", limit, got, n)
		}
	}
	p.WaitRefused("", "c")
	p.WaitRefused("max-waiters", "c")
	if n := entries.FilterMessage("limit reached: command refused").Len(); n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
}

// Whatever becomes of the work, the session that waits for it is told.
func TestWorkAsideIsDoneOrBroken(t *testing.T) {
	p, entries := logged(t)
	told := make(chan string, 10)
	aside := func(work func()) string {
		p.Aside("c", func() {
			work()
			told <- "done"
		}, func() { told <- "broken" })
		select {
		case outcome := <-told:
			return outcome
		case <-time.After(10 * time.Second):
			return "not told"
		}
	}
	if got := aside(func() {}); got != "done" {
		t.Errorf("the work is %s", got)
	}
	if got := aside(func() { panic("on purpose") }); got != "broken" {
		t.Errorf("work that panics is %s", got)
	}
	p.Inquiries.Wait()
	if got := aside(func() { t.Error("it runs after the end") }); got != "broken" {
		t.Errorf("work after the end is %s", got)
	}
	if len(told) > 0 || p.Counters.Closed[metrics.Panic].Load() != 1 {
		t.Errorf("%d more outcomes, %d panics", len(told), p.Counters.Closed[metrics.Panic].Load())
	}
	found := entries.FilterMessage("BUG: panic in a session").All()
	if len(found) != 1 || !strings.Contains(found[0].ContextMap()["stack"].(string), "shared_test.go") {
		t.Errorf("the log has %v", found)
	}
}

func TestTheClockTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{Source: metrics.Source{Started: time.Now()}}
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			p.Tick(stop)
		}()
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
			if late := time.Since(p.Started) - time.Duration(p.Clock.Load())*time.Millisecond; late < 0 || late > time.Second/2 {
				t.Errorf("after %v the clock is late by %v", time.Since(p.Started), late)
			}
		}
		close(stop)
		<-over
	})
}

// A command table is made anew only if Redis has told other commands.
func TestTheTableOfCommandsIsKept(t *testing.T) {
	up, err := upstream.New(upstream.Options{Addr: "127.0.0.1:1", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Source: metrics.Source{Upstream: up}}
	table := p.Policies()
	if p.Policies() != table || !table.IsOf(up.Commands()) {
		t.Error("each command would make a table")
	}
	if !p.Lists("config", "get") || p.Lists("config", "nosuch") || p.Lists("nosuch", "get") {
		t.Error("the subcommands of CONFIG are others")
	}
}
