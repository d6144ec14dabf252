package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// awaitAttempt waits for the end of the first attempt of a waiter: the deciding one, behind the confirmation of the
// subscription.
func (p *proxy) awaitAttempt(key string) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "the deciding attempt", func() bool { return p.settled(key) && p.attempts.Load() == 1 })
}

// settled reports whether no attempt for the lock is on its way.
func (p *proxy) settled(key string) bool {
	return p.waitQueue(key, (*table.Queue).Settled)
}

// b's channels are subscribed already when it asks, so that its first attempt decides, unless they have told something
// since.
func TestMessageBetweenADecidingFirstAttemptAndTheRoomIsNotLost(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, onlyWhenTold), startProxy(t, srv, nil)
	a, b, c := q.session(2), p.session(2), p.session(2)
	a.fence("LOCK k")
	b.waits("FAIRLOCK k")
	c.waits("LOCK k") // keeps the room
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
		c.waits("LOCK k")
	}
	b.want("UNLOCK k", ":1")
	fenceIn(t, c.reply())
	keeper := p.session(2)
	keeper.waits("LOCK k")
	redistest.Eventually(t, patience, "the deciding attempt", func() bool { return p.settled("k") })

	answer := b.withheld("FAIRLOCK k") // is told that the lock is busy, but not before it has been released twice
	c.want("UNLOCK k", ":1")
	fenceIn(t, keeper.reply())
	keeper.want("UNLOCK k", ":1")
	answer()
	fenceIn(t, b.reply()) // long before the lease ends
}
