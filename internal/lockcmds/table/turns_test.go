package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// model is the queue in Redis with the proxies that take turns in it, as the scripts have it: whose place is the first
// is granted the lock next.
type model struct {
	queue  []string
	crowds map[string]*waitingCrowd
}

type waitingCrowd struct {
	crowd
	waiting []int // clients, first come first
}

func (m *model) place(name string) Place {
	switch slices.Index(m.queue, name) {
	case -1:
		return NoPlace
	case 0:
		return Head
	}
	return Behind
}

// release hands the lock on, and returns which client gets it: of a crowd its first, else the fair one with that place.
func (m *model) release(fair map[string]int) (client int) {
	for name, c := range m.crowds { // those that wait see that others do
		if len(c.waiting) > 0 && m.place(name) == NoPlace {
			m.queue = append(m.queue, name)
			c.Refused(m.place(name))
		}
	}
	head := m.queue[0]
	c := m.crowds[head]
	if c == nil {
		m.queue = m.queue[1:]
		return fair[head]
	}
	waiting := len(c.waiting)
	if !c.Stays(waiting) {
		m.queue = m.queue[1:]
	}
	c.Granted(waiting, m.place(head))
	client, c.waiting = c.waiting[0], c.waiting[1:]
	return client
}

func TestSharesAreInProportion(t *testing.T) {
	for _, sizes := range []struct{ plain, fair []int }{
		{plain: []int{32, 32}},
		{plain: []int{1, 1}},
		{plain: []int{100, 1, 10}},
		{plain: []int{32}, fair: []int{32}},
		{plain: []int{1}, fair: []int{63}},
		{plain: []int{63}, fair: []int{1}},
		{plain: []int{16, 16}, fair: []int{16, 16}},
		{plain: []int{3, 50, 7, 1}, fair: []int{20, 2}},
	} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			m := &model{crowds: make(map[string]*waitingCrowd)}
			group := []string{} // of each client
			fair := make(map[string]int)
			for i, n := range sizes.plain {
				name := fmt.Sprint("crowd ", i)
				m.crowds[name] = &waitingCrowd{}
				group = append(group, slices.Repeat([]string{name}, n)...)
			}
			for i, n := range sizes.fair {
				group = append(group, slices.Repeat([]string{fmt.Sprint("fair ", i)}, n)...)
			}
			ask := func(client int) {
				if c := m.crowds[group[client]]; c != nil {
					c.waiting = append(c.waiting, client)
					return
				}
				place := fmt.Sprint(client)
				fair[place] = client
				m.queue = append(m.queue, place)
			}
			asked := make([]int, len(group))
			for _, client := range rng.Perm(len(group)) {
				ask(client)
			}
			grants, longest := make(map[string]int), 0
			total := 100 * len(group)
			for now := range total {
				client := m.release(fair)
				grants[group[client]]++
				longest = max(longest, now-asked[client])
				asked[client] = now
				ask(client)
			}
			for name, n := range grants {
				clients := len(slices.DeleteFunc(slices.Clone(group), func(g string) bool { return g != name }))
				if part := float64(n) / float64(100*clients); part < 0.95 || part > 1.05 {
					t.Errorf("%s, %d clients: %.2f of its share", name, clients, part)
				}
			}
			if longest > 3*len(group) {
				t.Errorf("somebody waited for %d grants among %d clients", longest, len(group))
			}
		})
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
