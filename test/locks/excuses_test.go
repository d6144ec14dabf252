package locks

import (
	"slices"
	"testing"
	"time"
)

func TestFaultsExcuseThatAWaiterGetsNothing(t *testing.T) {
	s := &stand{stalls: &stalls{}, watcher: &observer{}}
	fault := func(what string, from, to int64, harmless bool) {
		s.incidents = append(s.incidents, incident{what: what, from: from * int64(time.Millisecond), to: to * int64(time.Millisecond), harmless: harmless})
	}
	fault("kill redis", 10, 20, false)
	fault("forget scripts", 3000, 3000, true)
	for _, c := range []struct {
		call, ret, wait int64
		excused         bool
	}{{5, 9, 1, false}, {5, 12, 1, true}, {12, 15, 1, true}, {15, 25, -1, true}, {900, 950, 1, true}, {2900, 3100, 1, false}, {12, 15, 0, false}} {
		tried := said("a", "LOCK", c.call, c.ret, busy, 0)
		tried.Wait, tried.Lease = c.wait, int64(time.Minute)
		bad := linearizable("a", map[string][]op{"a": {tried}}, 100*time.Millisecond, s.mayGetNothing, t.TempDir()+"/a.html")
		if (bad == "") != c.excused {
			t.Errorf("%v: %q", tried, bad)
		}
	}
}

// A worker that has not used a connection for a while learns late that a fault has ended it.
func TestFaultsExcuseConnectionsThatTheyHaveEnded(t *testing.T) {
	const second = int64(time.Second)
	s := &stand{stalls: &stalls{}, watcher: &observer{}, incidents: []incident{{what: "drain a proxy", from: 10 * second, to: 12 * second}}}
	for _, c := range []struct {
		heard, call int64
		excused     bool
	}{{9, 11, true}, {9, 20, true}, {17, 20, false}, {0, 20, false}} {
		lost := said("a", "TRYLOCK", 0, 0, unknown, 0)
		lost.Heard, lost.Call = c.heard*second, c.call*second
		next := said("a", "TRYLOCK", 30_000, 30_001, busy, 0)
		if bad := s.uncalled(nil, map[string][]op{"a": {lost, next}}); (len(bad) == 0) != c.excused {
			t.Errorf("%+v: %q", c, bad)
		}
	}
}

// A worker that has not said how long it waits gives up in the end. A grant that it got at that moment is known to the observer alone.
func TestALockThatIsHeldExcusesWhoWaitsForIt(t *testing.T) {
	for _, c := range []struct {
		from, to int64
		wait     time.Duration
		seen     []int64 // when the observer saw the lock held; after the zero, it was free
		excused  bool
	}{
		{9_000, 15_000, -1, nil, true},
		{10_500, 14_000, -1, nil, true},
		{10_500, 12_000, -1, nil, false},
		{9_000, 15_000, time.Second, nil, false},
		{9_000, 12_000, -1, []int64{11_990, 12_500, 13_000, 13_500}, false}, // too far apart
		{9_000, 12_000, -1, looks(12_000, 14_000), true},
		{9_000, 10_000, -1, slices.Concat(looks(9_000, 12_000), []int64{0}, looks(12_500, 14_500)), true},
		{9_000, 10_000, -1, slices.Concat(looks(9_000, 12_000), []int64{0}, looks(13_500, 14_500)), false},
		{9_000, 10_000, -1, looks(10_000, 12_000), false},
	} {
		waited, next := said("a", "LOCK", 10_000, 0, unknown, 0), said("a", "TRYLOCK", 30_000, 30_001, busy, 0)
		waited.Wait = int64(c.wait)
		held := &hold{key: waited.Key, first: op{Call: c.from * int64(time.Millisecond)}, until: c.to * int64(time.Millisecond)}
		s := &stand{stalls: &stalls{}, watcher: &observer{held: make(map[string][]span), seen: make(map[string]int64)}}
		for _, at := range c.seen {
			s.watcher.noteHeld(waited.Key, at > 0, at*int64(time.Millisecond))
		}
		if bad := s.uncalled([]*hold{held}, map[string][]op{"a": {waited, next}}); (len(bad) == 0) != c.excused {
			t.Errorf("%+v: %q", c, bad)
		}
	}
}

// A killed proxy leaves its fair waiters in the queue.
func TestAStaleWaiterExcusesWhoWaitsBehindIt(t *testing.T) {
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	for _, c := range []struct {
		name     string
		verb     string
		place    string
		from, to int64 // when it was in the queue
		harmless bool
		excused  bool
	}{
		{"stale", "FAIRLOCK", "b", 1_500, 10_500, false, true},
		{"queued after the fault", "FAIRLOCK", "b", 3_500, 10_500, false, false},
		{"removed before", "FAIRLOCK", "b", 1_500, 9_500, false, false},
		{"itself", "FAIRLOCK", "a", 1_500, 10_500, false, false},
		{"nothing happened to it", "FAIRLOCK", "b", 1_500, 10_500, true, false},
		{"no fair waiter", "LOCK", "b", 1_500, 10_500, false, false},
	} {
		s := &stand{stalls: &stalls{}, incidents: []incident{{what: "kill a proxy", from: at(2_000), to: at(3_000), harmless: c.harmless}}}
		s.watcher = &observer{queued: map[string]map[string]span{"k": {c.place: {at(c.from), at(c.to)}}}}
		waited, next := said("a", c.verb, 10_000, 0, unknown, 0), said("a", "TRYLOCK", 30_000, 30_001, busy, 0)
		waited.Key, waited.Wait = "k", -1
		if bad := s.uncalled(nil, map[string][]op{"a": {waited, next}}); (len(bad) == 0) != c.excused {
			t.Errorf("%s: %q", c.name, bad)
		}
	}
}

// A lock that becomes free is kept for the first place in the queue, though its waiter may be dead.
func TestAStalePlaceExcusesThatAFreeLockIsBusy(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		from, to int64
		excused  bool
	}{{1_500, 10_500, true}, {1_500, 9_900, true}, {3_500, 10_500, false}, {1_500, 9_500, false}} {
		s := &stand{stalls: &stalls{}, incidents: []incident{{what: "kill a proxy", from: 2_000 * ms, to: 3_000 * ms}}}
		s.watcher = &observer{queued: map[string]map[string]span{"a": {"b": {c.from * ms, c.to * ms}}}}
		tried := said("a", "TRYLOCK", 10_000, 10_001, busy, 0)
		tried.Key, tried.Lease = "a", int64(time.Minute)
		bad := linearizable("a", map[string][]op{"a": {tried}}, 100*time.Millisecond, s.mayGetNothing, t.TempDir()+"/a.html")
		if (bad == "") != c.excused {
			t.Errorf("%+v: %q", c, bad)
		}
	}
}

// A client that was cut off from its answer may hold the lock for a while, though it has asked for replicas.
func TestAnAcquireWithoutAnAnswerExcusesThatTheLockIsBusy(t *testing.T) {
	for _, sync := range []int{0, 1} {
		lost, tried := said("a", "LOCK", 0, 0, unknown, 0), said("b", "TRYLOCK", 1_000, 1_001, busy, 0)
		lost.Key, lost.Wait, lost.Sync, tried.Key, tried.Lease = "a", -1, sync, "a", int64(time.Minute)
		never := func(op) bool { return false }
		if bad := linearizable("a", map[string][]op{"a": {lost}, "b": {tried}}, time.Second, never, t.TempDir()+"/a.html"); bad != "" {
			t.Errorf("SYNC %d: %s", sync, bad)
		}
	}
}

// looks are those of an observer, fifty milliseconds apart.
func looks(from, to int64) (at []int64) {
	for ; from <= to; from += 50 {
		at = append(at, from)
	}
	return at
}
