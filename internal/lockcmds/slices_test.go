package lockcmds

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// sliceSize is the number of holds, or of waiters, that are dealt with at a time.
const sliceSize = 128

// The end of a session with very many locks must not hold up the loop that it is told on, nor the engine.
func TestEndOfASessionWithManyLocksIsDoneInSlices(t *testing.T) {
	const many = 20_000
	e, s, _ := stocked(t, many)
	gate := make(chan struct{})
	e.jobs.Submit(jobs.Renewal, func() { <-gate }) // the only worker
	e.Ended(s.ID)
	if n := e.Holds(); n != many-sliceSize {
		t.Errorf("the session's own goroutine has ended %d of %d holds", many-n, many)
	}
	close(gate)
	redistest.Eventually(t, patience, "all holds to end", func() bool { return e.Holds() == 0 && e.watchdog.Len() == 0 && e.Idle() })
}

func TestLossesOfManyLeasesAtOnceAreToldInOrder(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	s := p.session(3)
	sub := srv.Client(t).PSubscribe(t.Context(), "lockproxy:lost:*")
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Lock()
	s.Pushes = make(chan string, 1000)
	s.Unlock()
	const many = 500
	for i := range many {
		h := hold(t, p.e, s.Caller(), itoa(int64(i)), int64(i))
		p.e.step(func(l *table.Table) { l.Lost(h, table.ReasonGone, true, nil) })
	}
	for i := range many {
		n := itoa(int64(i))
		equal(t, "push", s.push(), ">[lock-lost "+n+" :"+n+" gone]")
	}
	heard := map[string]bool{}
	for len(heard) < many {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		m, err := sub.ReceiveMessage(ctx)
		cancel()
		if err != nil {
			t.Fatalf("after %d messages: %v", len(heard), err)
		}
		heard[m.Channel] = true
	}
}

func TestDrainRefusesAllWaitersAndLeavesNothingInTheQueue(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	holder := p.session(2)
	holder.fence("LOCK k")
	const many = 3 * sliceSize
	var crowd []*session
	for i := range many {
		s := p.session(2)
		if i%8 == 0 {
			s.send("LOCK k")
		} else {
			s.send("FAIRLOCK k")
		}
		crowd = append(crowd, s)
	}
	// Some have not been answered yet: their places come into being while the engine drains.
	redistest.Eventually(t, patience, "half of them to wait", func() bool { return p.e.opts.Waiting.Load() >= many/2 })
	var closed sync.WaitGroup
	closed.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	for _, s := range crowd {
		equal(t, "reply", s.reply(), "-"+string(resp.Overloaded)+" the proxy is shutting down, connect again")
	}
	closed.Wait()
	if n := queued(t, srv, "k"); n != 0 {
		t.Errorf("%d entries are left in the queue", n)
	}
}
