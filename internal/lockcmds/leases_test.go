package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A command that sets a lease waits for a renewal on its way, which would set another one. If its client goes meanwhile,
// the hold must not wait for it for ever.
func TestAnAcquireWaitsForARenewalOfTheHold(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w, a, b := newLockWorld(t), newClient(1), newClient(2)
		h := w.acquire(t, a, "me", nil)
		ask := w.asksFor(&b.caller, lock, "me")
		w.Time = w.Time.Add(11 * time.Second)
		sent, answered := false, false
		w.Own.Answers = []any{func() resp.Value { // a renewal is on its way
			if ask.pause(time.Second, func() { sent = answered }) || sent {
				t.Error("a lease is set though a renewal may set another one")
			}
			if gone {
				b.Ended = true
				w.Ended(b.caller.ID)
			}
			answered = true
			return locktest.Numbers(1)
		}}
		w.Engine.Step()
		w.Work()
		if sent == gone || len(w.Own.Asked) != 1 {
			t.Errorf("the client has gone: %v; sent: %v; asked %q", gone, sent, w.Own.Asked)
		}
		w.step(func(l *table.Table) {
			r := l.Release(&a.session(w).Session, h.Key, 0)
			// The owner has a hold elsewhere.
			l.Released(&r, table.HoldAnswer{Status: table.Held, Fence: fence, Holds: 1, SentAt: w.Time})
		})
		if held := w.Holds() == 1; held == gone {
			t.Errorf("the client has gone: %v; the hold goes on: %v", gone, held)
		}
	}
}
