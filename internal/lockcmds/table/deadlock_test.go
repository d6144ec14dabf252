package table

import (
	"fmt"
	"testing"
	"time"
)

// chained is a table in which the session i holds the lock i for each i.
type chained struct {
	*Table
	sessions []*Session
}

func chain(n int) *chained {
	c := &chained{Table: newBook().Table}
	for i := range n {
		s := session(fmt.Sprint("s", i))
		c.sessions = append(c.sessions, s)
		c.holds(i, i)
	}
	return c
}

func lockName(i int) string { return fmt.Sprint("k", i) }

// holds has a session hold a lock.
func (c *chained) holds(i, lock int) {
	s := c.sessions[i]
	c.record(&Grant{
		By: s, Key: Key{Lock: lockName(lock), Owner: s.Name, Kind: alone}, Fence: int64(1 + i), Count: 1,
		SentAt: start, TTL: time.Minute, Grace: -1,
	})
	c.Effects()
}

// waits has a session wait for a lock.
func (c *chained) waits(i, lock int) *Waiter {
	s := c.sessions[i]
	w := &Waiter{By: s, Key: Key{Owner: s.Name, Kind: alone}}
	key := lockName(lock)
	c.Join(w, Names{Key: key, Channel: "c:" + key, Place: "p:" + key}, Mark{}, Answer{TTL: time.Minute})
	c.Effects()
	return w
}

// looked is how many holds a search from w on looks at.
func (c *chained) looked(w *Waiter) int {
	c.searches++
	s := search{t: c.Table, last: w, left: searchLimit}
	s.from(w)
	return searchLimit - max(s.left, 0)
}

func TestASearchForACircleIsBounded(t *testing.T) {
	const crowd = 5000
	c := chain(crowd)
	for i := 1; i < crowd; i++ {
		w := c.waits(i, i-1)
		if n := c.looked(w); n > min(i, searchLimit) {
			t.Fatalf("the wait %d looked at %d holds", i, n)
		}
	}
	if c.Deadlock(c.waits(0, crowd-1)) != nil {
		t.Error("a circle beyond the limit was found")
	}
}

func TestACircleUpToTheLimitIsFound(t *testing.T) {
	c := chain(searchLimit)
	for i := 1; i < searchLimit; i++ {
		c.waits(i, i-1)
	}
	if n := len(c.Deadlock(c.waits(0, searchLimit-1))); n != searchLimit {
		t.Errorf("a circle of %d holds", n)
	}
}

// Two ways lead from each lock to the next one, so there are a million ways to its end.
func TestASearchGoesOnFromEachSessionOnce(t *testing.T) {
	const steps = 20
	c := chain(2*steps + 2)
	for i := range steps {
		c.holds(2*i+1, 2*i)
		c.waits(2*i, 2*i+2)
		c.waits(2*i+1, 2*i+2)
	}
	last := c.waits(2*steps+1, 0)
	if n := c.looked(last); n > 4*steps {
		t.Errorf("the search looked at %d holds", n)
	}
}

// A session that has taken a crowd of locks, and waits for one of them, is found to block itself by a bounded look.
func TestAWaitForAHoldOfTheSameSession(t *testing.T) {
	for _, crowd := range []int{1, searchLimit, 3 * searchLimit} {
		c := chain(1)
		for i := 1; i < crowd; i++ {
			c.holds(0, i)
		}
		w := &Waiter{By: c.sessions[0], Key: Key{Owner: "another", Kind: alone}}
		c.Join(w, Names{Key: lockName(0), Channel: "c", Place: "p"}, Mark{}, Answer{TTL: time.Minute})
		if !c.BlocksItself(w) {
			t.Errorf("%d holds: not found", crowd)
		}
		w.Owner = c.sessions[0].Name
		if c.BlocksItself(w) {
			t.Errorf("%d holds: an owner waits for its own hold", crowd)
		}
	}
}

// A wait for the end of any permit ends when another session's does.
func TestAWaitForPermitsThatAreAllOfTheSameSession(t *testing.T) {
	c := chain(1)
	s := c.sessions[0]
	for fence := range int64(2) {
		c.record(&Grant{
			By: s, Key: Key{Lock: "p", Owner: s.Name, Kind: permit}, Fence: 11 + fence, Count: 1,
			SentAt: start, TTL: time.Minute, Grace: -1,
		})
	}
	w := &Waiter{By: s, Key: Key{Owner: s.Name, Kind: permit}}
	c.Join(w, Names{Key: "p", Channel: "c", Place: "p"}, Mark{}, Answer{TTL: time.Minute})
	for limit, want := range map[int]bool{2: true, 3: false} {
		if w.Limit = limit; c.BlocksItself(w) != want {
			t.Errorf("two of %d permits: %v", limit, !want)
		}
	}
}
