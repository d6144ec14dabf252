package lockcmds

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// queued is how many entries the fair queue of a lock has in Redis.
func queued(t *testing.T, srv *redistest.Server, key string) int64 {
	t.Helper()
	return srv.Client(t).LLen(t.Context(), script.Queue(key)).Val() + srv.Client(t).ZCard(t.Context(), locktest.NamesOf(key).Deadlines).Val()
}

func TestFairWaitersThatHangUpTogetherLeaveTogether(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	holder := p.session(2)
	holder.fence("LOCK k")
	const many = 300
	var crowd []*session
	for range many {
		s := p.session(2)
		s.send("FAIRLOCK k")
		crowd = append(crowd, s)
	}
	redistest.Eventually(t, patience, "all to wait", func() bool { return p.e.opts.Waiting.Load() == many })
	redistest.Eventually(t, patience, "their deciding attempts", func() bool { return p.attempts.Load() >= many })
	p.cleanedUp()
	before := scriptCalls(t, p.srv)
	for _, s := range crowd {
		s.hangUp()
	}
	redistest.Eventually(t, patience, "the queue to be empty", func() bool { return queued(t, p.srv, "k") == 0 })
	if n := scriptCalls(t, p.srv) - before; n > many/3 {
		t.Errorf("%d script calls took %d waiters out of the queue", n, many)
	}
	var left int
	p.e.step(func(q *table.Table) { left = q.Leaving() })
	if left > 1 {
		t.Errorf("%d locks with departures", left)
	}
}

func TestABacklogDoesNotStarveRenewals(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	gate := make(chan struct{})
	for range 1000 {
		p.e.calls.Background(jobs.Urgent, func() { <-gate })
		p.e.calls.Retry(cleanup{What: "wait", Key: "k", Limit: patience, Task: func(context.Context) error { <-gate; return nil }})
	}
	defer close(gate)
	a := p.session(2)
	a.fence("LOCK k")
	first := p.deadline("k")
	redistest.Eventually(t, patience, "the second renewal", func() bool { return p.deadline("k").Sub(first) > someLease/2 })
	b := p.session(3)
	b.fence("LOCK x PX 3000") // a grant that comes after its lease would wait for the clean-up
	equal(t, "loss", b.push()[:len(">[lock-lost x")], ">[lock-lost x")
}

// deadline is when the lease of a lock ends that is held here; zero: it is not held.
func (p *proxy) deadline(key string) (deadline time.Time) {
	p.e.step(func(l *table.Table) {
		for _, h := range l.Holds() {
			if h.Lock == key {
				deadline = h.Lease.Deadline()
			}
		}
	})
	return deadline
}

// awaitRenewal returns when Redis has renewed a lock.
func (p *proxy) awaitRenewal(key string) {
	p.t.Helper()
	redis := p.srv.Client(p.t)
	last := redis.PTTL(p.t.Context(), key).Val()
	redistest.Eventually(p.t, patience, "a renewal of "+key, func() bool {
		was := last
		last = redis.PTTL(p.t.Context(), key).Val()
		return last > was
	})
}
