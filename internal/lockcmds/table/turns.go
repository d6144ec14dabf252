package table

import "time"

// This file holds the rules by which the waiters of one proxy take turns with those of others.
//
// All turns are taken in one queue in Redis, Redisson's fair queue of the lock. A fair waiter has a place of its own in
// it. The plain waiters of a proxy are a crowd with one place for all of them:
//
//	queue   fair 1 · crowd of proxy A (3) · fair 2 · crowd of proxy B (1)
//	grants  1        1  1  1                1        1                     …
//
// A crowd whose place is at the head has its turn: one grant for each waiter that waits when the turn begins, by one
// hand-over after the other. With the last grant the place leaves the queue. Waiters that have come meanwhile take a
// new place at the end. So each waiter, plain or fair, at any proxy, gets one grant a round, and a crowd's share is in
// proportion to its number.
//
// A crowd has no place if no others wait for its lock. Then the queue is empty, and no turn ends its hand-overs.
//
// A release wakes the first place by its name, and tells the base channel. On that channel only those ask who have no
// place, or have heard that theirs is the first, plain or fair: by an answer, or by a message when the one before it has
// left. So a release costs Redis the same however many proxies wait, and the first hears of one of Redisson's plain locks.

// Place is where the place of a crowd is, as the scripts tell (script/lib/queue.lua).
type Place int64

// Values of Place.
const (
	NoPlace Place = iota // not in the queue
	Head                 // first in the queue: the crowd has its turn
	Behind               // in the queue, behind others
)

// crowd is the plain waiters for one lock at one proxy, as far as turns go. Its zero value has no place.
type crowd struct {
	at   Place
	left int // grants left of the turn; 0: the turn has not begun
}

// Queued reports whether the crowd has a place in the queue, as far as is known.
func (c *crowd) Queued() bool { return c.at != NoPlace }

// Asks reports whether a message that the lock may be free is for the crowd: behind others it would ask in vain. It is
// woken by the name of its place when its turn has come.
func (c *crowd) Asks() bool { return c.at != Behind }

// First notes that the place is the first now.
func (c *crowd) First() {
	if c.Queued() {
		c.at = Head
	}
}

// Stays reports whether the place stays where it is after the next grant. waiting is the number of waiters, the one
// that asks included. The place is given up with the last grant of a turn, and with the last waiter.
func (c *crowd) Stays(waiting int) bool { return waiting > 1 && c.left != 1 }

// Granted notes a grant to one of that number of waiters, and where the place is now.
func (c *crowd) Granted(waiting int, now Place) {
	c.at = now
	switch {
	case now != Head:
		c.left = 0
	case c.left == 0:
		c.left = waiting - 1
	default:
		c.left--
	}
}

// Refused notes that the lock went to others, or stayed with them, and where the place is now.
func (c *crowd) Refused(now Place) {
	c.at = now
	if now != Head {
		c.left = 0
	}
}

// Doubt notes that it is unknown whether a script ran: it may have taken a place, which may be the first.
func (c *crowd) Doubt() { c.at = Head }

// Limits of the hand-overs of a lock within one proxy, by number and by time. Then the lock is released openly once,
// because Redisson's plain waiters stand in no queue, and nor do those of another proxy before they have lost a race.
// They must not wait for much longer than any other waiter, even if there are few waiters and each holds the lock for
// milliseconds.
const (
	MaxHandOvers = 32
	MaxStreak    = 25 * time.Millisecond
)

// Streak counts the hand-overs since the lock was last free for all waiters. The zero value: none.
type Streak struct {
	n     int
	since time.Time // the first of them
}

// Next returns the streak with one more hand-over at that time. ok is false if it is too long for one more.
func (c Streak) Next(now time.Time) (next Streak, ok bool) {
	next = Streak{n: c.n + 1, since: c.since}
	if next.n == 1 {
		next.since = now
	}
	return next, next.n <= MaxHandOvers && now.Sub(next.since) <= MaxStreak
}
