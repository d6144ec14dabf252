package lockcmds

import (
	"testing"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/redislink"
)

// A fair waiter listens on two channels, and their confirmations come in any order.
func TestFairWaiterTriesAfterTheLastConfirmation(t *testing.T) {
	pool, err := jobs.New(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Close(patience); err != nil { // the attempt itself is of no interest
		t.Fatal(err)
	}
	for _, ownFirst := range []bool{true, false} {
		e, err := New(Options{Redis: linkTo(t, redislink.Options{Addr: "unused:0"}), UUID: "u", Jobs: pool})
		if err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		r := e.roomLocked("a")
		w := &waiter{verb: grammar.FairLock, key: "a", owner: "me", state: stateWaiting, room: r, c: &client{}}
		w.topic = e.hub.join(r.NameChannel(w.owner))
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
