package lockcmds

import (
	"testing"

	"github.com/panjf2000/ants/v2"
	"github.com/redis/rueidis"
)

// A fair waiter listens on two channels, and their confirmations come in any order.
func TestFairWaiterTriesAfterTheLastConfirmation(t *testing.T) {
	pool, err := ants.NewPool(1, ants.WithNonblocking(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Release)
	for _, ownFirst := range []bool{true, false} {
		e, err := New(Options{Redis: rueidis.ClientOption{InitAddress: []string{"unused:0"}}, UUID: "u", Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		e.jobs.submitTo = func(func()) error { return nil } // the attempt itself is of no interest
		e.mu.Lock()
		r := e.roomLocked("a")
		w := &waiter{verb: FairLock, key: "a", owner: "me", state: stateWaiting, room: r, c: &client{}}
		w.topic = e.hub.join(r.nameChannel(w.owner))
		w.topic.waiters[w] = struct{}{}
		r.fair.push(w)
		e.mu.Unlock()
		first, last := w.topic, r.topic
		if !ownFirst {
			first, last = last, first
		}
		e.onReady(first)
		if w.state != stateWaiting {
			t.Errorf("own channel first %v: it tries before both are confirmed", ownFirst)
		}
		e.onReady(last)
		if w.state != stateTrying {
			t.Errorf("own channel first %v: it does not try though both are confirmed", ownFirst)
		}
		if r.head.look != nil {
			r.head.look.Stop()
		}
	}
}
