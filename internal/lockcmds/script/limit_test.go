package script_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// permit is a permit in Redis.
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
	permitOfNamed = permit{named + "#" + me + ":5", fence, leaseMS * time.Millisecond}
	permitOfOther = permit{other + "#9", fence + 1, leaseMS * time.Millisecond}
	permitOfThem  = permit{redissons, 0, 2 * leaseMS * time.Millisecond}
	permitEnded   = permit{third + "#8", fence + 2, -5 * time.Millisecond}
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
			p.HSet(ctx, permits, one.name, fmt.Sprintf("#%d", one.fence), one.fence, one.name)
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
	all = b.state()
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

// limitCalls are the calls of the kind limit, and those of all kinds, as calls has those of the others.
func limitCalls(owner string, request int64) map[string]script.Call {
	acquire := script.Acquire{Key: key, Part: part(owner, request, 1), Lease: 30 * time.Second, Limit: 2}
	if owner == named {
		acquire.Session = me
	}
	plain := script.Attempt{Acquire: acquire, Wait: time.Minute, Enqueue: true}
	fair, crowd := plain, plain
	fair.Way, fair.Place = script.AtOwnPlace, me
	crowd.Way, crowd.Place, crowd.Stays = script.AtCrowdPlace, place, true
	release := script.Release{Key: key, Part: part(owner, request, 0)}
	any, elsewhere := release, release
	any.Fence = 0
	if owner == named {
		elsewhere.Session = other
	}
	waiter := &script.Acquire{Key: key, Part: script.Part{Owner: third}, Lease: 30 * time.Second, Limit: 2}
	drop := script.Drop{Key: key, Part: release.Part}
	grace, undo := drop, drop
	grace.Keep = 5 * time.Second
	undo.Name, undo.Fence = "5", 0
	renew := script.Renew{Renewals: []script.Renewal{
		{Key: key, Owner: owner, Fence: fence, Lease: 30 * time.Second, Note: "n"},
		{Key: key + "2", Owner: owner, Fence: fence, Lease: 30 * time.Second},
		{Key: key, Owner: owner, Fence: fence + 1, Lease: 30 * time.Second},
	}}
	some := map[string]script.Call{
		"take":                   plain.LimitCall(),
		"take fair":              fair.LimitCall(),
		"take for the crowd":     crowd.LimitCall(),
		"hand to a waiter":       script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: waiter}.LimitCall(),
		"hand to a fair one":     script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Fair: waiter, FairPlace: third}.LimitCall(),
		"hand to one of the two": script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: waiter, Fair: waiter, FairPlace: third}.LimitCall(),
		"give back":              release.LimitCall(),
		"give back any":          any.LimitCall(),
		"give back elsewhere":    elsewhere.LimitCall(),
		"set the lease":          script.Extend{Key: key, Part: release.Part, Lease: 30 * time.Second}.LimitCall(),
		"set it elsewhere":       script.Extend{Key: key, Part: elsewhere.Part, Lease: 10 * time.Second}.LimitCall(),
		"end":                    drop.LimitCall(),
		"end that acquire":       undo.LimitCall(),
		"shorten":                grace.LimitCall(),
		"keep":                   renew.LimitCall(),
		"tell":                   script.Prove{Key: key, Part: part(owner, 5, 0)}.LimitCall(),
	}
	all := calls(owner, request)
	for _, name := range []string{"info", "force", "force that grant", "head", "leave", "stale head"} {
		some[name] = all[name]
	}
	return some
}

// ofPermits reports whether a call of limitCalls is about permits alone.
func ofPermits(call script.Call) bool { return strings.HasSuffix(call.Name(), "_limit") }

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
			first, _ := script.DecodeAcquired(answer)
			second, _ := script.DecodeAcquired(again)
			if first.Granted != second.Granted || first.Fence != second.Fence || first.Place != second.Place {
				t.Errorf("%s: a copy is answered %+v, and the call %+v", what, second, first)
			}
			if first.Granted && len(names) > 2 {
				t.Errorf("%s: %q hold the lock", what, names)
			}
		}
	})
}

// Permits are a type of their own: a call of another kind about their key is refused, and so is theirs about another key.
func TestACallAboutAKeyOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	refuses := func(b rig, what string, call script.Call) {
		b.strange = true
		_, before := b.permitState()
		answer := b.run(call)
		_, after := b.permitState()
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s changes (-before +after):\n%s", what, diff)
		}
		ends := call.Name() == "drop" || call.Name() == "lease_limit" && call.Args[4] == "1"
		switch refused := strings.HasPrefix(string(answer.Str), "WRONGTYPE "); {
		case ends, strings.HasPrefix(call.Name(), "renew"), strings.HasPrefix(call.Name(), "prove"), call.Name() == "bound": // it is not there
			if held := answer.Int > 0 || len(answer.Elems) > 0 && answer.Elems[0].Int > 0; held || refused {
				t.Errorf("%s: %v", what, answer)
			}
		default:
			if !refused {
				t.Errorf("%s: %v", what, answer)
			}
		}
	}
	b := newRig(t)
	for _, owner := range []string{me, named} {
		for name, call := range calls(owner, newest) {
			switch call.Name() {
			case "info", "force", "head", "leave", "look", "remove_head", "refresh", "places", "tell", "ask": // they know no holders, or all
				continue
			}
			b.resetPermits(permitStates["all are out"])
			refuses(b, name+" of "+owner+" with permits", call)
		}
		for _, held := range []string{"acquire", "share"} {
			for name, call := range limitCalls(owner, newest) {
				if ofPermits(call) {
					b.c.FlushAll(t.Context())
					b.run(calls(owner, 1)[held])
					refuses(b, name+" of "+owner+" behind "+held, call)
				}
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
					if got != ends && got != -2*time.Nanosecond {
						t.Errorf("%s of %s, %s: the lock ends at %v, and %s at %v", name, owner, state, ends, other, got)
					}
				}
			}
		}
	}
}

// Those who wait elsewhere have been told which lease ends first, and when.
func TestHandOverOfAPermitForAShorterLeaseIsTold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel)
		n := b.n
		keys := []string{n.Lock, "{foo}:timeout", "{foo}:permits", "{foo}:owners", n.Channel, n.Queue, n.Deadlines, n.Fence}
		take := func(owner string, lease int) int64 {
			return b.must(b.s["acquire_limit"], keys, fmt.Sprintf("%s#%d", owner, b.next()), lease, 2, 0, 300000, "", "", 0, 0, "PUBLISH")[1]
		}
		handOver := func(from string, fence int64, to string, lease int) int64 {
			out := b.must(b.s["handover_limit"], keys, from, fence, "PUBLISH", 300000, ownerD+":plain-1", 0,
				fmt.Sprintf("%s#%d", to, b.next()), lease, 2, 0)
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
		take := script.Acquire{Key: key, Part: script.Part{Owner: me, Name: fmt.Sprint(newest)}, Limit: 2}
		call := script.Attempt{Acquire: take, Wait: time.Minute}.LimitCall()
		if answer := b.run(call); answer.IsError() {
			t.Errorf("left %q: %v", left, answer)
		}
	}
}
