package script_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// permit is a permit in Redis. A lease of 0 has just ended.
type permit struct {
	name  string
	fence int // 0: it is Redisson's
	lease time.Duration
}

// permitState is a lock with permits.
type permitState struct {
	left    string // at the key; empty: it is missing
	theirs  bool   // Redisson has made the string
	permits []permit
}

const redissons = "\x00\x01\xfe\xff0123456789ab"

var (
	permitOfMe    = permit{me + "#5", fence, leaseMS * time.Millisecond}
	permitOfNamed = permit{named + "#" + me + "-5", fence, leaseMS * time.Millisecond}
	permitOfOther = permit{other + "#9", fence + 1, leaseMS * time.Millisecond}
	permitOfThem  = permit{redissons, 0, 2 * leaseMS * time.Millisecond}
	permitEnded   = permit{third + "#8", fence + 2, 0}
)

var permitStates = map[string]permitState{
	"free":                                   {},
	"mine alone":                             {"1", false, []permit{permitOfMe}},
	"the named owner's alone":                {"1", false, []permit{permitOfNamed}},
	"all are out":                            {"0", false, []permit{permitOfMe, permitOfOther}},
	"all are out, of others":                 {"0", false, []permit{permitOfNamed, permitOfOther}},
	"one has ended":                          {"0", false, []permit{permitOfOther, permitEnded}},
	"of Redisson's, unused":                  {"2", true, nil},
	"of Redisson's, used":                    {"0", true, []permit{permitOfMe, permitOfThem}},
	"of Redisson's, one has ended":           {"1", true, []permit{permitOfMe, permitEnded}},
	"of ours, used by Redisson":              {"0", false, []permit{permitOfNamed, permitOfThem}},
	"the string is missing":                  {"", false, []permit{permitOfMe, permitOfOther}},
	"the string holds something else":        {"text", false, []permit{permitOfMe}},
	"more are out than there ever should be": {"-1", true, []permit{permitOfMe, permitOfNamed, permitOfOther}},
}

const (
	timeouts = "{k}:timeout"
	permits  = "{k}:permits"
	ownersOf = "{k}:owners"
)

func (b rig) resetPermits(s permitState, queue ...string) {
	b.t.Helper()
	b.reset(nil, queue...)
	ctx, now := b.t.Context(), time.Now()
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		if s.left != "" {
			p.Set(ctx, key, s.left, 0)
		}
		for _, one := range s.permits {
			p.ZAdd(ctx, timeouts, redis.Z{Score: float64(now.Add(one.lease).UnixMilli()), Member: one.name})
			if one.fence == 0 {
				continue
			}
			last := "5"
			if strings.HasPrefix(one.name, named) {
				last = me + "=5"
			}
			p.HSet(ctx, permits, one.name, fmt.Sprintf("#%d %s", one.fence, last), one.fence, one.name)
			if strings.HasPrefix(one.name, named) {
				p.ZAdd(ctx, ownersOf, redis.Z{Member: fmt.Sprintf("%s{%d", named, one.fence)})
			}
		}
		if !s.theirs && s.left != "" {
			p.HSet(ctx, permits, "made", "1")
			for _, k := range []string{key, timeouts, permits, ownersOf} {
				p.PExpireAt(ctx, k, now.Add(2*leaseMS*time.Millisecond))
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// permitState is what Redis has of the permits, in words. Leases are compared to five seconds.
func (b rig) permitState() (names []string, all string) {
	b.t.Helper()
	ctx := b.t.Context()
	_, all = b.state()
	now := float64(time.Now().UnixMilli())
	for _, z := range b.c.ZRangeWithScores(ctx, timeouts, 0, -1).Val() {
		names = append(names, z.Member.(string))
		all += fmt.Sprintf("%q until %d\n", z.Member, int(math.Round((z.Score-now)/5000)))
	}
	slices.Sort(names)
	all += fmt.Sprintln(b.c.ZRange(ctx, ownersOf, 0, -1).Val())
	hash := b.c.HGetAll(ctx, permits).Val()
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		all += fmt.Sprintf("%s=%s\n", field, hash[field])
	}
	for _, k := range []string{timeouts, permits, ownersOf} {
		all += fmt.Sprint(b.c.PTTL(ctx, k).Val().Round(5*time.Second), " ")
	}
	return names, all
}

// limitCalls are the calls of the kind limit, as calls has those of the others.
func limitCalls(owner string, request int64) map[string]script.Call {
	acquire := script.Acquire{Key: key, Part: script.Part{Owner: owner, Request: request}, Lease: 30 * time.Second, Limit: 2}
	if owner == named {
		acquire.Session = me
	}
	limited := script.Limited{Shared: script.Shared{Acquire: acquire, Wait: time.Minute, Enqueue: true}}
	fair, crowd := limited, limited
	fair.Way, fair.Place = script.AtOwnPlace, me
	crowd.Way, crowd.Place, crowd.Stays = script.AtCrowdPlace, place, true
	all := calls(owner, request)
	release := script.Release{Key: key, Part: part(owner, request, 0)}
	waiter := &script.Acquire{Key: key, Part: script.Part{Owner: third, Request: 3}, Lease: 30 * time.Second, Limit: 2}
	undo := script.Drop{Key: key, Part: part(owner, request, 0), Acquire: 5, Less: 1, Remember: true}
	undo.Fence = 0
	some := map[string]script.Call{
		"take":                   limited.Call(),
		"take fair":              fair.Call(),
		"take for the crowd":     crowd.Call(),
		"hand to a waiter":       script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: waiter}.CallOfLimit(),
		"hand to a fair one":     script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Fair: waiter}.CallOfLimit(),
		"hand to one of the two": script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: waiter, Fair: waiter}.CallOfLimit(),
		"drop that acquire":      undo.Call(),
	}
	for _, name := range []string{
		"acquire", "fair", "crowd", "share", "release", "release any grant", "extend", "drop", "drop with grace", "renew", "info", "force", "force that grant",
		"force by handle", "prove", "head", "leave", "stale head",
	} {
		some[name] = all[name]
	}
	return some
}

// eachPermitCase plays each call on each state of the permits and of the queue.
func eachPermitCase(t *testing.T, f func(b rig, owner, name, what string, reset func())) {
	b := newRig(t)
	for _, owner := range []string{me, named} {
		for state, s := range permitStates {
			for q, queue := range queues {
				for name := range limitCalls(owner, newest) {
					b.strange = s.left == "text" || slices.Contains(queue, text) || s.theirs
					f(b, owner, name, fmt.Sprintf("%s, of %s, %s, %s", name, owner, state, q), func() { b.resetPermits(s, queue...) })
				}
			}
		}
	}
}

func TestACallForAPermitThatRunsTwiceLeavesWhatItLeavesOnce(t *testing.T) {
	t.Parallel()
	eachPermitCase(t, func(b rig, owner, name, what string, reset func()) {
		call := limitCalls(owner, newest)[name]
		reset()
		_, before := b.permitState()
		answer := b.run(call)
		names, once := b.permitState()
		again := b.run(call)
		_, twice := b.permitState()
		if diff := cmp.Diff(once, twice); diff != "" && !strings.HasPrefix(name, "force") {
			t.Errorf("%s: a copy changes (-once +twice):\n%s", what, diff)
		}
		if answer.IsError() && before != once {
			t.Errorf("%s: the call is refused, and changes (-before +after):\n%s", what, cmp.Diff(before, once))
		}
		if strings.HasPrefix(name, "take") {
			first, _ := script.DecodeCrowd(answer)
			second, _ := script.DecodeCrowd(again)
			if first.Granted != second.Granted || first.Fence != second.Fence || first.Place != second.Place {
				t.Errorf("%s: a copy is answered %+v, and the call %+v", what, second, first)
			}
			if first.Granted && len(names) > 2 {
				t.Errorf("%s: %q hold the lock", what, names)
			}
		}
	})
}

// The calls of the other kinds leave permits alone, and wait.
func TestPermitsAreHeldAgainstTheOtherKinds(t *testing.T) {
	t.Parallel()
	eachPermitCase(t, func(b rig, _, name, what string, reset func()) {
		if !asks(name) {
			return
		}
		reset()
		before, _ := b.permitState()
		kind, left := b.c.Type(t.Context(), key).Val(), b.c.Get(t.Context(), key).Val()
		answer := b.run(limitCalls(me, newest)[name])
		after, _ := b.permitState()
		if kind == "none" { // without the string there are no permits
			return
		}
		if diff := cmp.Diff(before, after); diff != "" || b.c.Get(t.Context(), key).Val() != left {
			t.Errorf("%s changes permits (-before +after):\n%s", what, diff)
		}
		if granted, _ := script.DecodeAcquired(answer); granted.Granted {
			t.Errorf("%s: granted beside %q", what, before)
		}
	})
}

// The calls about a permit that is over leave what its owner holds in another way alone.
func TestOtherKindsAreHeldAgainstPermits(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	for _, owner := range []string{me, named} {
		for _, kind := range []string{"acquire", "share"} {
			for _, name := range []string{"hand to a waiter", "drop that acquire"} {
				b.c.FlushAll(t.Context())
				b.run(calls(owner, 1)[kind])
				_, before := b.state()
				call := limitCalls(owner, newest)[name]
				if len(call.Keys) < 5 {
					call = call.OfPermits(1)
				}
				if answer := b.run(call); answer.Kind != resp.Array {
					t.Errorf("%s, of %s, behind %s: %+v", name, owner, kind, answer)
				}
				if _, after := b.state(); before != after {
					t.Errorf("%s, of %s, behind %s (-before +after):\n%s", name, owner, kind, cmp.Diff(before, after))
				}
			}
		}
	}
}

func TestAnOlderCopyChangesNoPermit(t *testing.T) {
	t.Parallel()
	later := []string{"extend", "drop with grace", "release"}
	eachPermitCase(t, func(b rig, owner, name, what string, reset func()) {
		if name == "force" || b.strange || asks(name) {
			return
		}
		older, newer := limitCalls(owner, newest)[name], limitCalls(owner, newest+1)
		for _, next := range later {
			if strings.HasPrefix(name, "take") && next == "release" {
				continue // a copy of an acquire whose permit was released takes one that ends with its lease
			}
			reset()
			b.run(older)
			b.run(newer[next])
			names, before := b.permitState()
			b.run(older)
			again, after := b.permitState()
			if !numbered(name) { // it writes no numbers, and may make a lease longer
				before, after = fmt.Sprint(names), fmt.Sprint(again)
			}
			if before != after {
				t.Errorf("%s, then %s: an older copy changes (-before +after):\n%s", what, next, cmp.Diff(before, after))
			}
		}
	})
}

// A copy of an acquire or an extension that runs after the session has gone does not undo its GRACE.
func TestALateCopyDoesNotUndoTheGraceOfAPermit(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	for _, owner := range []string{me, named} {
		for _, late := range []string{"take", "take fair", "take for the crowd"} {
			b.resetPermits(permitState{})
			taken, err := script.DecodeCrowd(b.run(limitCalls(owner, newest)[late]))
			if err != nil || !taken.Granted {
				t.Fatal(taken, err)
			}
			grace := script.Drop{Key: key, Part: part(owner, newest+2, 0), Grace: 2 * time.Second, Less: 1}
			grace.Fence = taken.Fence
			extend := script.Extend{Key: key, Part: part(owner, newest+1, 0), Lease: time.Minute}
			extend.Fence = taken.Fence
			b.run(extend.Call())
			b.run(grace.Call())
			b.run(limitCalls(owner, newest)[late])
			b.run(extend.Call())
			if left := b.c.PTTL(t.Context(), key).Val(); left <= 0 || left > 2*time.Second {
				t.Errorf("%s of %s: a lease of %v after a late copy", late, owner, left)
			}
		}
	}
}

// The keys of a lock with permits end in the same millisecond: the string alone would be taken for another program's.
func TestTheKeysOfPermitsEndTogether(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	ctx := t.Context()
	for _, owner := range []string{me, named} {
		for name, call := range limitCalls(owner, newest) {
			for state, s := range permitStates {
				if s.theirs || s.left == "text" || s.left == "" && s.permits != nil {
					continue
				}
				b.resetPermits(s)
				b.run(call)
				if len(b.c.ZRange(ctx, timeouts, 0, -1).Val()) == 0 {
					continue
				}
				ends := b.c.PExpireTime(ctx, key).Val()
				for _, other := range []string{timeouts, permits, ownersOf} {
					got := b.c.PExpireTime(ctx, other).Val()
					if got != ends && got != -2*time.Nanosecond && !strings.HasPrefix(name, "info") && changed(name) {
						t.Errorf("%s of %s, %s: the lock ends at %v, and %s at %v", name, owner, state, ends, other, got)
					}
				}
			}
		}
	}
}

// changed reports whether a call sets the end of the keys, if it does something.
func changed(name string) bool {
	return strings.HasPrefix(name, "take") || strings.HasPrefix(name, "hand")
}

// Whatever is called in whatever order, no permit is lost and none is made.
func TestNoPermitIsLostOrMade(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	ctx := t.Context()
	for seed := range 12 {
		r := rand.New(rand.NewPCG(uint64(seed), 27))
		const most = 4
		theirs := seed%2 == 1
		b.reset(nil)
		if theirs {
			b.c.Set(ctx, key, most, 0)
		}
		fences := map[int64]string{} // owners, by fence
		redisson := map[string]bool{}
		out := 0
		for step := range 300 {
			what := ""
			owner := []string{me, other, third, named}[r.IntN(4)]
			request := int64(step + 1)
			p := script.Part{Owner: owner, Request: request}
			if owner == named {
				p.Session = []string{me, other}[r.IntN(2)]
			}
			for fence := range fences {
				if p.Fence == 0 || r.IntN(2) == 0 {
					p.Fence = fence
				}
			}
			switch r.IntN(8) {
			case 0, 1, 2:
				p.Fence = 0
				what = "take"
				a := script.Limited{Shared: script.Shared{Acquire: script.Acquire{
					Key: key, Part: p, Lease: time.Minute, Limit: most - r.IntN(2),
				}}}
				got, err := script.DecodeCrowd(b.run(a.Call()))
				if err != nil {
					t.Fatal(err)
				}
				if got.Granted {
					fences[got.Fence] = owner
				}
			case 3:
				what = "release"
				release := script.Release{Key: key, Part: p}
				b.strange = theirs // without permits it is another program's number
				if v := b.run(release.Call()); v.Kind == resp.Integer {
					delete(fences, v.Int)
				}
			case 4:
				what = "hand over"
				w := &script.Acquire{Key: key, Part: script.Part{Owner: third, Request: request}, Lease: time.Minute, Limit: most}
				h := script.HandOver{Release: script.Release{Key: key, Part: p}, Wait: time.Minute, Crowd: place, Plain: w}
				b.strange = theirs
				v := b.run(h.CallOfLimit())
				got, err := h.Decode(v)
				if err != nil && !theirs {
					t.Fatal(err)
				}
				if got.Status == script.Freed || got.Status == script.HandedOver {
					delete(fences, got.Fence)
				}
				if got.Granted != 0 {
					fences[got.Granted] = third
				}
			case 5:
				what = "drop"
				b.run(script.Drop{Key: key, Part: p, Less: 1}.Call())
				if fences[p.Fence] == owner {
					delete(fences, p.Fence)
				}
			case 6:
				what = "force"
				if r.IntN(4) == 0 && !theirs {
					b.run(script.Force{Key: key, Fence: script.AnyGrant, Owner: owner}.Call())
					maps.DeleteFunc(fences, func(_ int64, of string) bool { return of == owner })
				}
			case 7:
				what = "redisson"
				id := "r" + strconv.Itoa(r.IntN(3))
				if redisson[id] {
					b.c.ZRem(ctx, timeouts, id)
					b.c.Incr(ctx, key)
					delete(redisson, id)
				} else if left, err := b.c.Get(ctx, key).Int(); err == nil && left > 0 {
					b.c.Decr(ctx, key)
					b.c.ZAdd(ctx, timeouts, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: id})
					redisson[id] = true
				}
			}
			before := out
			out = len(fences) + len(redisson)
			left, err := b.c.Get(ctx, key).Int()
			known := b.c.HLen(ctx, permits).Val()
			want := 2 * int64(len(fences))
			if !theirs && err == nil {
				want++
			}
			switch {
			case int(b.c.ZCard(ctx, timeouts).Val()) != out, known != want:
				t.Fatalf("seed %d, step %d, %s: %d permits in the zset and %d fields, want %d of ours and %d of Redisson's",
					seed, step, what, b.c.ZCard(ctx, timeouts).Val(), known, len(fences), len(redisson))
			case theirs && left+out != most:
				t.Fatalf("seed %d, step %d, %s: %d left, %d out", seed, step, what, left, out)
			case !theirs && (err == nil) != (out > 0) && what != "redisson" && out+before > 0: // Redisson leaves a free string behind
				t.Fatalf("seed %d, step %d, %s: %d out, and the string is %v", seed, step, what, out, err)
			case out > most:
				t.Fatalf("seed %d, step %d, %s: %d out", seed, step, what, out)
			}
		}
	}
}

// Those who wait elsewhere have been told which lease ends first, and when.
func TestHandOverOfAPermitForAShorterLeaseIsTold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel)
		n := b.n
		take := func(owner string, lease int) int64 {
			return b.must(b.s["acquire_limit"], []string{n.Lock, n.Queue, n.Deadlines, n.Fence, n.Channel, "{foo}:timeout", "{foo}:permits"},
				owner, lease, b.next(), 2, "", 300000, "", "", 0, 0, "PUBLISH")[1]
		}
		handOver := func(from string, fence int64, to string, lease int) int64 {
			out := b.must(b.s["handover_limit"], []string{n.Lock, n.Channel, n.Queue, n.Fence, n.Deadlines, "{foo}:timeout", "{foo}:permits"},
				from, fence, "PUBLISH", 300000, ownerD+":plain-1", 0, to, lease, b.next(), "", 2)
			equal(t, "to "+to, out[:1], []int64{2})
			return out[1]
		}
		told := []string{"redisson_lock__channel:{foo} 0"}
		first, other := take(ownerA, 30000), take(ownerB, 20000)
		first = handOver(ownerA, first, ownerC, 25000)
		equal(t, "shorter, but another lease ends first", heard(), []string(nil))
		first = handOver(ownerC, first, ownerA, 10000)
		equal(t, "the new lease ends first", heard(), told)
		first = handOver(ownerA, first, ownerC, 15000)
		equal(t, "it ends first, but later than the old one", heard(), []string(nil))
		handOver(ownerC, first, ownerA, 40000)
		equal(t, "the other one ends first now", heard(), []string(nil))
		handOver(ownerB, other, ownerC, 1000)
		equal(t, "the other one is shorter", heard(), told)
	})
}

// Redis was stopped for longer than the lease, between its time and its keys: the permit has ended, which is no error.
func TestAPermitThatHasEndedAtItsGrantIsNoError(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	for _, left := range []string{"", "0"} {
		s := permitState{left: left}
		if left != "" {
			s.permits = []permit{permitEnded}
		}
		b.resetPermits(s)
		take := script.Acquire{Key: key, Part: script.Part{Owner: me, Request: newest}, Limit: 2}
		call := script.Limited{Shared: script.Shared{Acquire: take, Wait: time.Minute}}.Call()
		if answer := b.run(call); answer.IsError() {
			t.Errorf("left %q: %v", left, answer)
		}
	}
}
