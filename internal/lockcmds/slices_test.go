package lockcmds

import (
	"context"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// sliceSize is the number of holds, or of waiters, that are dealt with at a time.
const sliceSize = 128

func TestDrainRefusesAllWaitersAndLeavesNothingInTheQueue(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
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
	if n := queued(t, p.srv, "k"); n != 0 {
		t.Errorf("%d entries are left in the queue", n)
	}
}
