package lockcmds

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

func TestCommandsOnALeaseWaitForItsRenewal(t *testing.T) {
	sent, answer := make(chan struct{}), make(chan struct{})
	renewals, err := watchdog.New(watchdog.Options{
		Submit: func(f func()) { go f() },
		Renew: func(ctx context.Context, _ watchdog.Group, _ []watchdog.Renewal) ([]watchdog.Verdict, error) {
			close(sent)
			select {
			case <-answer:
			case <-ctx.Done(): // the test has failed
			}
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
	defer func() { cancel(); await(t, stopped, "the watchdog to end") }()
	h := &table.Hold{TTL: 3 * time.Second}
	renewals.Track(&h.Lease, watchdog.Entry{TTL: 3 * time.Second}, time.Now())
	await(t, sent, "a renewal")
	s := locktest.New(t, nil, 1, 2, nil)
	done := make(chan struct{})
	s.Lock()
	e := &Engine{}
	if e.pauseLocked(s, h, time.Second, func() { close(done) }, nil) {
		t.Error("sent while a renewal is on its way")
	}
	s.Unlock()
	select {
	case <-done:
		t.Error("sent while a renewal was on its way")
	default:
	}
	close(answer)
	await(t, done, "the command to be sent")
	if !e.pauseLocked(s, h, time.Second, nil, nil) {
		t.Fatal("not sent at once though no renewal was on its way")
	}
	h.Lease.Forget()
}

// A client may go while its acquire waits for a renewal of the hold that the acquire is to deepen. The hold must not
// wait for it for ever.
func TestAnAcquireThatIsNotSentLetsTheHoldEnd(t *testing.T) {
	w, a, b := newLockWorld(t), newClient(1), newClient(2)
	h := w.acquire(t, a, "me", nil)
	ask := w.asksFor(&b.caller, lock, "me")
	w.Time = w.Time.Add(11 * time.Second)
	w.Own.Answers = []any{func() resp.Value { // a renewal is on its way
		if ask.pause(time.Second, func() { t.Error("sent for a client that has gone") }) {
			t.Error("a shorter lease is set though a renewal may set a longer one")
		}
		b.Ended = true
		w.Ended(b.caller.ID)
		return locktest.Numbers(1)
	}}
	w.Engine.Step()
	w.Work()
	w.step(func(l *table.Table) {
		r := l.Release(&a.session(w).Session, h.Key, 0)
		l.Released(&r, table.HoldAnswer{Status: table.Held, Fence: fence, Holds: 1, SentAt: w.Time}) // the owner has a hold elsewhere
	})
	if len(w.Own.Asked) != 1 || w.Holds() != 0 {
		t.Errorf("asked %q, %d holds", w.Own.Asked, w.Holds())
	}
}
