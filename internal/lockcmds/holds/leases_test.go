package holds

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/failstop"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

func TestCommandsOnALeaseWaitForItsRenewal(t *testing.T) {
	sent, answer := make(chan struct{}), make(chan struct{})
	renewals, err := watchdog.New(watchdog.Options{
		Submit: func(f func()) error { go f(); return nil },
		Renew: func(context.Context, any, []watchdog.Renewal) ([]watchdog.Verdict, error) {
			close(sent)
			<-answer
			return []watchdog.Verdict{watchdog.Renewed}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = renewals.Run(ctx)
	}()
	defer func() { cancel(); <-stopped }()
	l := renewals.Track(watchdog.Entry{Key: "k", Owner: "o", Fence: 1, TTL: 3 * time.Second}, time.Now())
	<-sent
	s := locktest.New(t, nil, 1, 2, nil)
	done := make(chan struct{})
	s.Lock()
	ordered(failstop.Guard{}, s, l, func() { close(done) })
	s.Unlock()
	select {
	case <-done:
		t.Error("sent while a renewal was on its way")
	default:
	}
	close(answer)
	<-done
	now := false
	ordered(failstop.Guard{}, s, l, func() { now = true })
	if !now {
		t.Fatal("not sent at once though no renewal was on its way")
	}
	l.Forget()
}
