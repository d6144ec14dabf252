package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestHandOverToAClientThatHungUpIsGivenBack(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b, c := p.session(2), p.session(2), p.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	p.awaitAttempt("k")
	answer := a.Lane.HoldBack()
	a.send("UNLOCK k")
	redistest.Eventually(t, patience, "redis to answer", func() bool { return a.Lane.Answered.Load() == 2 })
	b.hangUp()
	c.send("LOCK k")
	c.awaitWaiting()
	answer()
	equal(t, "unlock", a.reply(), ":1")
	fenceIn(t, c.reply()) // long before the lease ends
	if n := p.handovers.Load(); n != 1 {
		t.Errorf("%d hand-overs", n)
	}
}

// awaitAttempt waits for the end of the first attempt of a waiter: the deciding one, behind the confirmation of the subscription.
func (p *proxy) awaitAttempt(key string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "the deciding attempt", func() bool { return p.settled(key) && p.attempts.Load() == 1 })
}

// settled reports whether no attempt for the lock is on its way.
func (p *proxy) settled(key string) bool {
	return p.waitQueue(key, (*table.Queue).Settled)
}

func TestMessageDuringAnAttemptCausesAnother(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute }), startProxy(t, srv, nil)
	a, b := p.session(2), q.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	q.awaitAttempt("k")
	var w *table.Waiter
	q.e.step(func(s *table.Table) { // as if an attempt were on its way that finds the lock held
		w, _ = s.Offer("k", "")
	})
	a.want("UNLOCK k", ":1")
	redistest.Eventually(t, patience, "the message", func() bool {
		again := false
		q.e.step(func(*table.Table) { _, again = w.Asks() })
		return again
	})
	q.e.step(func(s *table.Table) { s.Answered(w, table.Answer{TTL: time.Minute}) })
	fenceIn(t, b.reply())
}

// b's channels are subscribed already when it asks, so that its first attempt decides, unless they have told something since.
func TestMessageBetweenADecidingFirstAttemptAndTheRoomIsNotLost(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }), startProxy(t, srv, nil)
	a, b, c := q.session(2), p.session(2), p.session(2)
	a.fence("LOCK k")
	b.send("FAIRLOCK k")
	b.awaitWaiting()
	c.send("LOCK k") // keeps the room
	c.awaitWaiting()
	a.want("UNLOCK k", ":1")
	winner, other := b, c
	select {
	case <-b.Replies:
	case <-c.Replies: // it may overtake
		winner, other = c, b
	case <-time.After(patience):
		t.Fatal("nobody got it")
	}
	if winner == c {
		winner.want("UNLOCK k", ":1")
		fenceIn(t, other.reply())
		c.send("LOCK k")
		c.awaitWaiting()
	}
	b.want("UNLOCK k", ":1")
	fenceIn(t, c.reply())
	keeper := p.session(2)
	keeper.send("LOCK k")
	keeper.awaitWaiting()
	redistest.Eventually(t, patience, "the deciding attempt", func() bool { return p.settled("k") })

	answered := b.Lane.Answered.Load()
	answer := b.Lane.HoldBack()
	b.send("FAIRLOCK k") // is told that the lock is busy, but not before it has been released twice
	redistest.Eventually(t, patience, "redis to answer", func() bool { return b.Lane.Answered.Load() == answered+1 })
	c.want("UNLOCK k", ":1")
	fenceIn(t, keeper.reply())
	keeper.want("UNLOCK k", ":1")
	answer()
	fenceIn(t, b.reply()) // long before the lease ends
}
