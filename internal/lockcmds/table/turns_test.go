package table

import (
	"testing"
	"time"
)

func TestTurnIsOneGrantForEachThatWaits(t *testing.T) {
	var c crowd
	step := func(what string, waiting int, stays bool) {
		t.Helper()
		if got := c.Stays(waiting); got != stays {
			t.Fatalf("%s: the place stays %t, want %t", what, got, stays)
		}
		now := NoPlace
		if stays {
			now = Head
		}
		c.Granted(waiting, now)
		if c.Queued() != stays {
			t.Fatalf("%s: queued %t", what, c.Queued())
		}
	}
	c.Refused(Behind)
	step("first of three", 3, true)
	step("second, and two have come", 4, true)
	step("third, and the turn is over", 3, false)
	c.Refused(Behind)
	step("first of three", 3, true)
	step("the others have left", 1, false)
	step("alone", 1, false)
}

func TestTurnThatWasLostBeginsAnew(t *testing.T) {
	var c crowd
	c.Granted(5, Head) // four are left of the turn
	c.Refused(Head)    // somebody was faster: it is still our turn
	for n := range 3 {
		if c.Granted(5, Head); !c.Stays(5) != (n == 2) {
			t.Fatalf("grant %d: the place stays %t", n+2, c.Stays(5))
		}
	}
	c.Refused(Behind) // it was given up, and taken anew
	if !c.Stays(5) {
		t.Fatal("a new turn is over with its first grant")
	}
	c.Granted(5, Behind) // out of turn
	c.Granted(3, Head)
	c.Granted(3, Head)
	if c.Stays(3) {
		t.Fatal("a grant out of turn counts")
	}
	c = crowd{}
	if c.Doubt(); !c.Queued() {
		t.Fatal("a script in doubt may have taken a place")
	}
}

func TestChainEnds(t *testing.T) {
	start := time.Now()
	var c Streak
	for n := range MaxHandOvers {
		next, ok := c.Next(start.Add(MaxStreak * time.Duration(n) / MaxHandOvers))
		if !ok {
			t.Fatalf("hand-over %d is refused", n+1)
		}
		c = next
	}
	if _, ok := c.Next(start); ok {
		t.Error("there may be too many")
	}
	first, _ := Streak{}.Next(start)
	if _, ok := first.Next(start.Add(MaxStreak)); !ok {
		t.Error("a second one in time is refused")
	}
	if _, ok := first.Next(start.Add(MaxStreak + 1)); ok {
		t.Error("they may last for too long")
	}
}

func TestAPlaceBehindOthersAsksWhenItIsWokenByName(t *testing.T) {
	var c crowd
	for _, step := range []struct {
		what string
		do   func()
		asks bool
	}{
		{"without a place", func() {}, true},
		{"behind others", func() { c.Refused(Behind) }, false},
		{"told that it is the first", c.First, true},
		{"granted, and behind others again", func() { c.Granted(2, Behind) }, false},
		{"an answer is lost", c.Doubt, true},
		{"gone", func() { c.Refused(NoPlace) }, true},
		{"a late message", c.First, true},
	} {
		if step.do(); c.Asks() != step.asks {
			t.Errorf("%s: it asks %t", step.what, c.Asks())
		}
	}
	if c.Queued() {
		t.Error("a message has made a place")
	}
}

// Plain locks of Redisson's tell the base channel alone of a release. A fair waiter that was told by its name that it is
// the first asks then, and so does a crowd that was told so while an attempt was on its way, whose answer is older.
func TestTheFirstInTheQueueHearsOfPlainReleases(t *testing.T) {
	attempts := func(w *world) (n int) {
		for _, e := range w.s.Effects() {
			if e.Op == Attempt {
				n++
			}
		}
		return n
	}
	w := heldWorld(t)
	w.ask(fair, "")
	w.settle()
	q := w.s.Queue("k")
	first := q.fair.First()
	q.reaper.phase = idling // it watches the head already
	w.s.Effects()
	w.s.Published(q.names.Channel)
	if n := attempts(w); n != 0 {
		t.Errorf("a waiter that may be behind others has asked %d times", n)
	}
	w.s.First(first.Wake, time.Second)
	w.s.Published(q.names.Channel)
	if n := attempts(w); n != 1 {
		t.Errorf("the first has asked %d times", n)
	}

	w = heldWorld(t)
	w.ask(plain, "")
	w.settle()
	q = w.s.Queue("k")
	ask := q.plain.First()
	q.wake()
	w.s.Answered(ask, Answer{Status: Busy, TTL: time.Second, Placed: true, Place: Behind})
	q.woken = true
	q.wake()
	w.s.Effects()
	w.s.First(q.names.Wake, time.Second)
	w.s.Answered(ask, Answer{Status: Busy, TTL: time.Second, Placed: true, Place: Behind})
	if n := attempts(w); n != 1 {
		t.Errorf("the crowd has asked %d times", n)
	}
}
