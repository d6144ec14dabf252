package locks

import (
	"slices"
	"testing"
	"time"
)

// The checks themselves are tested with histories made by hand. Times are milliseconds.

// said builds a command with its outcome.
func said(worker, verb string, call, ret int64, out outcome, fence int64) op {
	const ms = int64(time.Millisecond)
	o := op{Worker: worker, Verb: verb, Key: "a", Owner: worker, Call: call * ms, Return: ret * ms, Out: out, Fence: fence}
	if o.acquire() || verb == "EXTENDLOCK" {
		o.Lease = 100 * ms
	}
	return o
}

func graced(o op) op {
	o.Graced = true
	return o
}

// lasting sets the length of the lease.
func lasting(ms int64, o op) op {
	o.Lease = ms * int64(time.Millisecond)
	return o
}

// fixed gives the lease no renewal.
func fixed(o op) op {
	o.Fixed = true
	return o
}

// through is a command of an explicit owner.
func through(proxy int, o op) op {
	o.Proxy, o.Named = proxy, true
	if o.Out == notHeld {
		o.Text = "LOSTLEASE the lock was lost before this command: its lease ended, or it was taken away"
	}
	return o
}

var verdicts = []struct {
	name    string
	ops     []op
	overlap bool // two clients could rely on the lock at once
	illegal bool // the model has no order for it
}{
	{"one after the other", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0),
		said("b", "LOCK", 0, 4, acquired, 6), said("b", "UNLOCK", 5, 6, released, 0),
	}, false, false},
	{"granted twice", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 50, 51, released, 0),
		said("b", "LOCK", 2, 3, acquired, 6), said("b", "UNLOCK", 40, 41, released, 0),
	}, true, true},
	{"granted before the lease ended", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "LOCK", 90, 95, acquired, 6),
	}, true, true},
	{"granted after the lease ended", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "LOCK", 90, 101, acquired, 6),
	}, false, false},
	{"granted though a witness saw the lease renewed", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCKINFO", 150, 151, mine, 5),
		said("b", "LOCK", 110, 120, acquired, 6),
	}, true, true},
	{"granted while a release was on its way", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 9, released, 0), said("b", "LOCK", 3, 4, acquired, 6),
	}, false, false},
	{"granted after a release without a reply", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 0, unknown, 0), said("b", "LOCK", 3, 4, acquired, 6),
	}, false, false},
	{"granted early because of GRACE", []op{
		graced(said("a", "LOCK", 0, 1, acquired, 5)), said("b", "LOCK", 3, 4, acquired, 6),
	}, false, false},
	{"granted at the end of a fixed lease, although another proxy has set a longer one", []op{
		fixed(through(1, said("a", "LOCK", 0, 1, acquired, 5))), lasting(400, through(0, said("a", "TRYLOCK", 2, 3, acquired, 5))),
		through(0, said("a", "UNLOCK", 4, 210, still, 5)), said("b", "LOCK", 90, 105, acquired, 6),
	}, true, false},
	{"granted when another proxy could not renew the lease any more", []op{
		through(1, said("a", "LOCK", 0, 1, acquired, 5)), lasting(400, through(0, said("a", "TRYLOCK", 2, 3, acquired, 5))),
		through(0, said("a", "UNLOCK", 4, 210, still, 5)), said("b", "LOCK", 90, 105, acquired, 6),
	}, false, false},
	{"granted after a command through another proxy had no reply", []op{
		fixed(through(1, said("a", "LOCK", 0, 1, acquired, 5))), lasting(400, through(0, said("a", "TRYLOCK", 2, 3, acquired, 5))),
		lasting(400, fixed(through(1, said("a", "EXTENDLOCK", 4, 0, unknown, 5)))), through(0, said("a", "UNLOCK", 50, 210, still, 5)),
		said("b", "LOCK", 90, 105, acquired, 6),
	}, false, false},
	{"the fence goes back", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "LOCK", 4, 5, acquired, 4),
	}, false, true},
	{"the fence is given twice", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "LOCK", 4, 5, acquired, 5),
	}, false, true},
	{"re-entry", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 5),
		said("a", "UNLOCK", 4, 5, still, 0), said("a", "UNLOCK", 6, 7, released, 0),
	}, false, false},
	{"re-entry with a new fence", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 6),
	}, true, true},
	{"released with one hold left", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0),
	}, false, true},
	{"one hold more than was asked for", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, still, 0),
	}, false, true},
	{"lost within the lease", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 50, 51, notHeld, 0),
	}, false, true},
	{"lost after the lease", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 120, 121, notHeld, 0),
	}, false, false},
	{"released by a stranger", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "UNLOCK", 4, 5, released, 0),
	}, false, true},
	{"a part of it lost by one of two proxies", []op{
		through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 2, 3, acquired, 5)),
		through(0, said("a", "EXTENDLOCK", 4, 121, notHeld, 0)), through(0, said("a", "UNLOCK", 122, 123, released, 0)),
	}, false, false},
	{"both parts lost", []op{
		through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 2, 3, acquired, 5)),
		through(0, said("a", "UNLOCK", 104, 105, still, 0)), said("b", "LOCK", 106, 107, acquired, 6),
	}, false, false},
	{"a part of it given back after the answer", []op{
		through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 90, 91, acquired, 5)),
		through(0, said("a", "EXTENDLOCK", 92, 121, notHeld, 0)), through(1, said("a", "UNLOCK", 122, 123, still, 0)),
		said("b", "LOCK", 124, 125, acquired, 6),
	}, false, false},
	{"a part of it lost within the lease", []op{
		through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 2, 3, acquired, 5)),
		through(0, said("a", "UNLOCK", 22, 23, released, 0)),
	}, false, true},
	{"a part of it lost though it has only one", []op{
		through(1, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 2, 3, acquired, 5)),
		through(1, said("a", "UNLOCK", 122, 123, released, 0)),
	}, false, true},
	{"granted after a shorter lease, whose answer came too late, ended", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 1700, notHeld, 0)),
		said("b", "LOCK", 60, 320, acquired, 6),
	}, false, false},
	{"granted within a shorter lease", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 1700, notHeld, 0)),
		said("b", "LOCK", 60, 300, acquired, 6),
	}, false, true},
	{"granted after a shorter lease that was refused at once", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 11, notHeld, 0)),
		said("b", "LOCK", 60, 320, acquired, 6),
	}, false, true},
	{"granted after a re-entry, whose answer came too late, ended", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 400, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 320, acquired, 6)),
	}, false, false},
	{"granted within the lease of a re-entry", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 400, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 300, acquired, 6)),
	}, true, true},
	{"granted after a re-entry that was refused at once", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 11, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 320, acquired, 6)),
	}, true, true},
	{"busy while free", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, false, true},
	{"busy while an acquire is in doubt", []op{
		said("a", "LOCK", 0, 0, unknown, 0), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, false, false},
	{"busy while held", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, false, false},
}

func TestChecksTellRightFromWrong(t *testing.T) {
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) { judge(t, v.ops, nil, v.overlap, v.illegal) })
	}
}

// judge compares what the checks say of commands with what they should.
func judge(t *testing.T, ops []op, losses []loss, overlap, illegal bool) {
	t.Helper()
	histories := make(map[string][]op)
	for _, o := range ops {
		o.N = len(histories[o.Worker])
		histories[o.Worker] = append(histories[o.Worker], o)
	}
	var all []*hold
	for _, ops := range histories {
		all = append(all, holdsOf(ops, losses)...)
	}
	if bad := overlaps(all); len(bad) > 0 != overlap {
		t.Errorf("overlaps: %v, want any: %v", bad, overlap)
	}
	undisturbed := func(op) bool { return false }
	bad := linearizable("a", histories, 100*time.Millisecond, undisturbed, losses, t.TempDir()+"/a.html")
	if (bad != "") != illegal {
		t.Errorf("model: %q, want an objection: %v", bad, illegal)
	}
}

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
		bad := linearizable("a", map[string][]op{"a": {tried}}, 100*time.Millisecond, s.mayGetNothing, nil, t.TempDir()+"/a.html")
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

// looks are those of an observer, fifty milliseconds apart.
func looks(from, to int64) (at []int64) {
	for ; from <= to; from += 50 {
		at = append(at, from)
	}
	return at
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
	}{{1_500, 10_500, true}, {3_500, 10_500, false}, {1_500, 9_500, false}} {
		s := &stand{stalls: &stalls{}, incidents: []incident{{what: "kill a proxy", from: 2_000 * ms, to: 3_000 * ms}}}
		s.watcher = &observer{queued: map[string]map[string]span{"a": {"b": {c.from * ms, c.to * ms}}}}
		tried := said("a", "TRYLOCK", 10_000, 10_001, busy, 0)
		tried.Key, tried.Lease = "a", int64(time.Minute)
		bad := linearizable("a", map[string][]op{"a": {tried}}, 100*time.Millisecond, s.mayGetNothing, nil, t.TempDir()+"/a.html")
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
		if bad := linearizable("a", map[string][]op{"a": {lost}, "b": {tried}}, time.Second, never, nil, t.TempDir()+"/a.html"); bad != "" {
			t.Errorf("SYNC %d: %s", sync, bad)
		}
	}
}

func TestALossThatIsToldLateIsNotOneOfTheLatestGrant(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []op
		want outcome
	}{
		{"lost at one proxy, taken again at the other", []op{
			through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 200, 201, acquired, 6)), through(0, said("a", "UNLOCK", 202, 203, notHeld, 0)),
		}, earlier},
		{"told where it was taken again", []op{
			through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 200, 201, acquired, 6)), through(1, said("a", "UNLOCK", 202, 203, notHeld, 0)),
		}, notHeld},
		{"taken again at both", []op{
			through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(1, said("a", "LOCK", 200, 201, acquired, 6)), through(0, said("a", "LOCK", 202, 203, acquired, 6)),
			through(0, said("a", "UNLOCK", 204, 205, notHeld, 0)),
		}, notHeld},
		{"taken once", []op{through(0, said("a", "LOCK", 0, 1, acquired, 5)), through(0, said("a", "UNLOCK", 2, 3, notHeld, 0))}, notHeld},
		{"told by a proxy that never had it", []op{through(1, said("a", "LOCK", 0, 1, acquired, 5)), through(0, said("a", "UNLOCK", 2, 3, notHeld, 0))}, notHeld},
	} {
		tellApart(c.ops)
		if got := c.ops[len(c.ops)-1].Out; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLedgerSeesLostUpdates(t *testing.T) {
	l := &ledger{entries: make(map[string]*entry)}
	for _, step := range []struct{ say, want string }{
		{"R a 5", "ok 0 0"},
		{"R a 6", "ok 0 0"},
		{"W a 6 0 0", "ok"},
		{"W a 5 0 0", "no"},
		{"R a 5", "no"},
		{"R a 6", "ok 1 1"},
	} {
		if got := l.answer(step.say); got != step.want {
			t.Errorf("%s: %q, want %q", step.say, got, step.want)
		}
	}
	if bad := l.lostUpdates(); len(bad) > 0 {
		t.Errorf("with fences: %v", bad)
	}
	if l.entries["a"].nakedLost != 1 {
		t.Errorf("without fences %d updates lost, want 1", l.entries["a"].nakedLost)
	}
	l.answer("W a 6 0 1") // a second holder with the same fence
	if len(l.lostUpdates()) == 0 {
		t.Error("an update that overwrites another is not seen")
	}
}
