package script_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A script that runs twice leaves what it leaves when it runs once.

const (
	key     = "k"
	me      = "aaaaaaaa-0000-4000-8000-000000000001:11"
	other   = "bbbbbbbb-0000-4000-8000-000000000002:22"
	third   = "cccccccc-0000-4000-8000-000000000003:33"
	place   = "eeeeeeee-0000-4000-8000-000000000005:plain-1"
	named   = "job-4711"
	fence   = 1000
	newest  = 100 // number in the name of the acquire under test, for the named owner
	leaseMS = 20_000
	mine    = me + ":5" // the acquire by which I have my part in a lock of the named owner
)

// rig runs calls on a real Redis.
type rig struct {
	t       *testing.T
	c       *redis.Client
	strange bool // a key holds a value of another type, so a script may be refused
}

func newRig(t *testing.T) rig {
	b := rig{t: t, c: redistest.Start(t).Client(t)}
	for _, s := range script.All() {
		if err := b.c.ScriptLoad(t.Context(), s.Text()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b rig) run(c script.Call) resp.Value {
	b.t.Helper()
	args := make([]any, len(c.Args))
	for i, a := range c.Args {
		args[i] = a
	}
	v, err := b.c.EvalSha(b.t.Context(), c.SHA(), c.Keys, args...).Result()
	if refusal, refused := errors.AsType[redis.Error](err); refused {
		if text := refusal.Error(); strings.HasPrefix(text, "WRONGTYPE ") && b.strange {
			return resp.Value{Kind: resp.SimpleError, Str: []byte(text)}
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		b.t.Fatalf("%s %v: %v", c.Name(), c.Args, err)
	}
	return value(v)
}

func value(v any) resp.Value {
	switch v := v.(type) {
	case int64:
		return resp.Value{Kind: resp.Integer, Int: v}
	case string:
		return resp.Value{Kind: resp.Bulk, Str: []byte(v)}
	case []any:
		list := resp.Value{Kind: resp.Array}
		for _, e := range v {
			list.Elems = append(list.Elems, value(e))
		}
		return list
	}
	return resp.Value{Kind: resp.Null, Null: true}
}

// state is what Redis has of the lock, in words. Leases are compared to the second.
func (b rig) state() string {
	b.t.Helper()
	n := locktest.NamesOf(key)
	var kind, text, queue, turn, counter, lease, places redis.Cmder
	var fields *redis.MapStringStringCmd
	timeouts := map[string]*redis.DurationCmd{}
	_, _ = b.c.Pipelined(b.t.Context(), func(p redis.Pipeliner) error {
		kind, fields, text = p.Type(b.t.Context(), key), p.HGetAll(b.t.Context(), key), p.Get(b.t.Context(), key)
		lease = p.PTTL(b.t.Context(), key)
		queue, places = p.LRange(b.t.Context(), n.Queue, 0, -1), p.ZCard(b.t.Context(), n.Deadlines)
		turn, counter = p.Get(b.t.Context(), n.Channel), p.Get(b.t.Context(), n.Fence)
		for _, owner := range owners {
			for nth := range 2 {
				timeouts[timeout(owner, nth+1)] = p.PTTL(b.t.Context(), timeout(owner, nth+1))
			}
		}
		return nil
	})
	var out strings.Builder
	fmt.Fprintln(&out, kind.(*redis.StatusCmd).Val(), text.(*redis.StringCmd).Val())
	hash := fields.Val()
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		fmt.Fprintf(&out, "%s=%s\n", field, hash[field])
	}
	for _, name := range slices.Sorted(maps.Keys(timeouts)) {
		if left := timeouts[name].Val(); left > 0 {
			fmt.Fprintln(&out, name, left.Round(5*time.Second))
		}
	}
	fmt.Fprintln(&out, "lease", lease.(*redis.DurationCmd).Val().Round(5*time.Second), "queue", queue.(*redis.StringSliceCmd).Val(),
		"places", places.(*redis.IntCmd).Val(), "kept for", turn.(*redis.StringCmd).Val(), "counter", counter.(*redis.StringCmd).Val())
	return out.String()
}

// owners are all that hold a lock in states.
var owners = []string{me, other, third, named}

// timeout is the key of the lease of a shared holder; Redisson's clients have one for each hold.
func timeout(owner string, nth int) string {
	return fmt.Sprintf("{%s}:%s:rwlock_timeout:%d", key, owner, nth)
}

// A text stands for a value of another type.
const text = "not a lock, nor a queue"

func (b rig) reset(hash []any, queue ...string) {
	b.t.Helper()
	n := locktest.NamesOf(key)
	var ended any
	if len(hash) > 1 && hash[0] == "ended" {
		ended, hash = hash[1], hash[2:]
	}
	_, err := b.c.Pipelined(b.t.Context(), func(p redis.Pipeliner) error {
		p.FlushDB(b.t.Context())
		if len(hash) > 1 && hash[0] == "mode" && hash[1] == "read" {
			hash = slices.Concat(hash, indexed(hash))
			for i := 2; i < len(hash); i += 2 {
				for nth := range 2 {
					if holds, ok := hash[i+1].(int); ok && nth < holds && hash[i] != ended {
						p.Set(b.t.Context(), timeout(hash[i].(string), nth+1), 1, leaseMS*time.Millisecond)
					}
				}
			}
		}
		switch {
		case len(hash) == 1:
			p.Set(b.t.Context(), key, hash[0], 0)
		case len(hash) > 0 && hash[0] == "no ttl":
			p.HSet(b.t.Context(), key, hash[1:]...)
		case len(hash) > 0 && hash[0] == "kept for":
			p.Set(b.t.Context(), n.Channel, hash[1], 250*time.Millisecond)
		case len(hash) > 0:
			p.HSet(b.t.Context(), key, hash...)
			p.PExpire(b.t.Context(), key, leaseMS*time.Millisecond)
		}
		for _, place := range queue {
			if place == text {
				p.Set(b.t.Context(), n.Queue, text, 0)
				continue
			}
			p.RPush(b.t.Context(), n.Queue, place)
			p.ZAdd(b.t.Context(), n.Deadlines, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: place})
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// indexed is the fields by which the grants of a hash that is held shared are found.
func indexed(hash []any) (index []any) {
	for i := 2; i+1 < len(hash); i += 2 {
		if record, ok := hash[i+1].(string); ok {
			by, _, _ := strings.Cut(strings.TrimPrefix(record, "#"), " ")
			index = append(index, "{}"+by, "#"+strings.Trim(hash[i].(string), "{}"))
		}
	}
	return index
}

func fieldOf(session string) string { return "{" + session + "}" }

// states are hashes by name: those of an owner with one session, those of a named owner, and those of others. One value
// alone is a text; "no ttl" and "kept for" stand before a hash without a TTL, and before the place for which the free
// lock is kept; "ended" and an owner before a hash that is held shared, if that owner's lease has ended.
var states = map[string][]any{
	"free":                     nil,
	"free, kept for me":        {"kept for", me},
	"free, kept for another":   {"kept for", third},
	"free, kept for the crowd": {"kept for", place},
	"a text":                   {text},
	"of no owner":              {"mode", "read"},
	"mine, without a fence":    {me, 1},
	"mine, without a TTL":      {"no ttl", me, 1, "fence", fence},
	"another's, Redisson's":    {other, 2},
	"another's, without a TTL": {"no ttl", other, 1},
	"mine":                     {me, 1, "fence", fence},
	"mine twice":               {me, 2, "fence", fence},
	"mine, by another grant":   {me, 1, "fence", fence - 1},
	"another owner's":          {other, 1, "fence", fence},
	"named, mine alone":        {named, 1, "fence", fence, "{by}", mine},
	"named, mine twice":        {named, 2, "fence", fence, "{by}", mine},
	"named, another session's": {named, 1, "fence", fence, "{by}", other + ":5"},
	"named, of two sessions":   {named, 3, "fence", fence, "{by}", "*"},
	"named, by another grant":  {named, 2, "fence", fence - 1, "{by}", "*"},
	"named, of a version back": {named, 2, "fence", fence},
	"named, Redisson's alone":  {named, 2},
	"mine, of this version":    {me, 1, "fence", fence, "mode", "lock"},
	"named, of this version":   {named, 1, "fence", fence, "{by}", mine, "mode", "lock"},
	"read by me":               {"mode", "read", me, 1, third, 2},
	"read by the named one":    {"mode", "read", named, 1},
	"written by me":            {"mode", "write", me, 1},
	"written by another":       {"mode", "write", other + ":write", 1},

	"shared, mine":                     {"mode", "read", me, 1, fieldOf(me), "#1000"},
	"shared, mine twice":               {"mode", "read", me, 2, fieldOf(me), "#1000"},
	"shared, mine, by another grant":   {"mode", "read", me, 1, fieldOf(me), "#999"},
	"shared, mine with another's":      {"mode", "read", me, 1, fieldOf(me), "#1000", other, 1, fieldOf(other), "#990"},
	"shared, mine with Redisson's":     {"mode", "read", third, 2, me, 1, fieldOf(me), "#1000"},
	"shared, mine with one that ended": {"ended", third, "mode", "read", third, 2, me, 1, fieldOf(me), "#1000"},
	"shared, mine ended":               {"ended", me, "mode", "read", me, 1, fieldOf(me), "#1000", other, 1, fieldOf(other), "#990"},
	"shared, another's":                {"mode", "read", other, 1, fieldOf(other), "#990"},
	"shared, another's ended":          {"ended", other, "mode", "read", other, 1, fieldOf(other), "#990"},
	"shared, named, mine alone":        {"mode", "read", named, 1, fieldOf(named), "#1000 " + mine},
	"shared, named, another session's": {"mode", "read", named, 1, fieldOf(named), "#1000 " + other + ":5"},
	"shared, named, of two sessions":   {"mode", "read", named, 3, fieldOf(named), "#1000 *"},
	"shared, named, by another grant":  {"mode", "read", named, 2, fieldOf(named), "#999 *"},
	"shared, named, with Redisson's":   {"mode", "read", named, 1, fieldOf(named), "#1000 " + mine, third, 2},
}

var queues = map[string][]string{
	"nobody queues": nil, "a stranger is first": {third}, "I am first": {me, third}, "plain waiters are first": {place, third}, "the queue is a text": {text},
}

// part is my part in the lock as I know it, and how many holds I have after the call.
func part(owner string, number, holds int64) script.Part {
	p := script.Part{Owner: owner, Fence: fence, Holds: holds}
	if owner == named {
		p.Session, p.Name, p.By = me, fmt.Sprint(me, ":", number), mine
	}
	return p
}

// calls are the calls under test, by name. Each is one of mine; an acquire of a named owner has that number.
func calls(owner string, number int64) map[string]script.Call {
	acquire := script.Acquire{Key: key, Part: part(owner, number, 3), Lease: 30 * time.Second}
	first := acquire
	first.Fence, first.Holds, first.By = 0, 1, ""
	release := script.Release{Key: key, Part: part(owner, number, 0), Lease: 30 * time.Second}
	release.By = ""
	partly := release
	partly.Holds = 1
	any := release
	any.Fence = 0
	waiter := &script.Acquire{Key: key, Part: script.Part{Owner: third, Holds: 1}, Lease: 30 * time.Second}
	drop := script.Drop{Key: key, Part: part(owner, number, 0)}
	if owner == named {
		drop.Name = mine
	}
	grace := drop
	grace.Keep = 10 * time.Second
	share := script.Attempt{Acquire: first, Wait: time.Minute}
	again := script.Attempt{Acquire: acquire, Wait: time.Minute}
	all := map[string]script.Call{
		"share":                  share.SharedCall(),
		"share again":            again.SharedCall(),
		"share in turn":          at(share, script.AtOwnPlace, owner, false, true).SharedCall(),
		"share in turn again":    at(again, script.AtOwnPlace, owner, false, true).SharedCall(),
		"share without a place":  at(share, script.AtOwnPlace, owner, false, false).SharedCall(),
		"share with the crowd":   at(share, script.AtCrowdPlace, place, false, true).SharedCall(),
		"share, the crowd stays": at(again, script.AtCrowdPlace, place, true, false).SharedCall(),
	}
	for name, shared := range map[string]bool{"": false, "shared ": true} {
		release, partly, any := release, partly, any
		release.Shared, partly.Shared, any.Shared = shared, shared, shared
		all[name+"release"], all[name+"release one"], all[name+"release any grant"] = release.Call(), partly.Call(), any.Call()
		for what, drop := range map[string]script.Drop{
			"drop": drop, "drop with grace": grace,
		} {
			all[name+what] = drop.Call()
		}
		p := part(owner, number, 0)
		p.Shared = shared
		if deepen := (script.Deepen{Acquire: acquire}); owner == me {
			deepen.Shared = shared
			all[name+"deepen"] = deepen.Call()
		}
		all[name+"extend"] = script.Extend{Key: key, Part: p, Lease: 60 * time.Second}.Call()
		all[name+"prove"] = script.Prove{Key: key, Part: p}.Call()
		renewals := []script.Renewal{{Key: key, Owner: owner, Fence: fence, Lease: 30 * time.Second}}
		all[name+"renew"] = script.Renew{Renewals: renewals, Shared: shared}.Call()
	}
	maps.Copy(all, map[string]script.Call{
		"acquire":                 first.Call(),
		"acquire again":           acquire.Call(),
		"fair":                    at(share, script.AtOwnPlace, owner, false, true).Call(),
		"fair again":              at(again, script.AtOwnPlace, owner, false, true).Call(),
		"crowd":                   at(share, script.AtCrowdPlace, place, false, true).Call(),
		"crowd stays":             at(again, script.AtCrowdPlace, place, true, false).Call(),
		"hand over":               script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: waiter}.Call(),
		"hand over to a fair one": script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Fair: waiter, FairPlace: third}.Call(),
		"info":                    script.Info{Key: key}.Call(),
		"force":                   script.Force{Key: key, Fence: script.AnyGrant}.Call(),
		"force that grant":        script.Force{Key: key, Fence: fence}.Call(),
		"force one owner":         script.Force{Key: key, Fence: script.AnyGrant, Owner: other}.Call(),
		"leave":                   script.Leave{Key: key, Places: []string{me}}.Call(),
		"many leave":              script.Leave{Key: key, Places: []string{me, third, place, "a", "b", "c"}}.Call(),
		"refresh":                 script.Refresh{Key: key, Wait: time.Minute, Places: []string{me}}.Call(),
		"stale head":              script.RemoveHead{Key: key, Place: third}.Call(),
		"stale head, by force":    script.RemoveHead{Key: key, Place: me, Force: true}.Call(),
		"head":                    script.Head{Key: key}.Call(),
		"places":                  script.Places{Key: key, Most: 10}.Call(),
		"tell":                    script.Tell{Key: key, Messages: []script.Message{{"a", "b"}}}.Call(),
		"ask":                     script.Ask{}.Call(),
		"look":                    script.Look{Key: key}.Call(),
		"bound":                   script.Bound{Key: key, Lease: time.Minute}.Call(),
	})
	return all
}

// at is a call that asks at a place in the queue.
func at(a script.Attempt, way script.Way, place string, stays, enqueue bool) script.Attempt {
	a.Way, a.Place, a.Stays, a.Enqueue = way, place, stays, enqueue
	return a
}

// verbOf is the first word of a call's name, and whether the call is about a shared hold.
func verbOf(name string) (verb string, shared bool) {
	rest, shared := strings.CutPrefix(name, "shared ")
	verb, _, _ = strings.Cut(rest, " ")
	verb = strings.TrimSuffix(verb, ",")
	return verb, shared || verb == "share"
}

// asks reports whether a call may make a grant out of nothing.
func asks(name string) bool {
	verb, _ := verbOf(name)
	return verb == "acquire" || verb == "fair" || verb == "crowd" || verb == "share"
}

func TestEveryScriptIsInTheTable(t *testing.T) {
	t.Parallel()
	missing := scripts()
	for _, owner := range []string{me, named} {
		for _, all := range []map[string]script.Call{calls(owner, newest), limitCalls(owner, newest)} {
			for _, call := range all {
				delete(missing, call.Name())
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("the table does not have %v", slices.Sorted(maps.Keys(missing)))
	}
}

// ours reports whether a state is one in which calls for the owner are played: a hash of its own, or one that is
// neither's.
func ours(owner string, hash []any) bool {
	mine, others := slices.Contains(hash, any(me)), slices.Contains(hash, any(named))
	return !mine && !others || (owner == named) == others
}

// eachCase plays each call on each state of the hash and of the queue. A free lock is kept for a waiter for 250 ms
// only, so a case that takes longer is played again.
func eachCase(t *testing.T, f func(b rig, owner, name, what string, reset func())) {
	b := newRig(t)
	for _, owner := range []string{me, named} {
		for state, hash := range states {
			if !ours(owner, hash) {
				continue
			}
			for q, queue := range queues {
				if state == "free, kept for me" && len(queue) > 0 && !slices.Contains(queue, me) {
					continue // it is kept for a place in the queue
				}
				for name := range calls(owner, newest) {
					b.strange = len(hash) == 1 || slices.Contains(queue, text)
					f(b, owner, name, fmt.Sprintf("%s, of %s, %s, %s", name, owner, state, q), func() { b.reset(hash, queue...) })
				}
			}
		}
	}
}

// inTime plays a case until it has taken less than the 200 ms for which a free lock is surely kept.
func inTime(play func()) {
	for range 20 {
		start := time.Now()
		if play(); time.Since(start) < 200*time.Millisecond {
			return
		}
	}
}

func TestAScriptThatRunsTwiceLeavesWhatItLeavesOnce(t *testing.T) {
	t.Parallel()
	eachCase(t, func(b rig, owner, name, what string, reset func()) {
		call := calls(owner, newest)[name]
		switch verb, _ := verbOf(name); {
		case verb == "release" || verb == "hand" || verb == "extend" || owner == named && asks(name):
			return // it is sent once; see TestHoldsOfANamedOwnerAreCountedByOne
		}
		var before, once, twice string
		var answer, again resp.Value
		inTime(func() {
			reset()
			before = b.state()
			answer = b.run(call)
			once = b.state()
			again = b.run(call)
			twice = b.state()
		})
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("%s: a copy changes (-once +twice):\n%s", what, diff)
		}
		if answer.IsError() && before != once {
			t.Errorf("%s: the call is refused, and changes (-before +after):\n%s", what, cmp.Diff(before, once))
		}
		if !asks(name) {
			return
		}
		first, _ := script.DecodeAcquired(answer)
		second, _ := script.DecodeAcquired(again)
		first.Damage, second.Damage, first.PTTL, second.PTTL = 0, 0, 0, 0
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: a copy is answered otherwise (-once +twice):\n%s", what, diff)
		}
	})
}

// Redisson's read and write locks judge by the field mode, and its readers count every numeric field down to one: see
// lib/lock.lua.
func TestEveryGrantHasItsMode(t *testing.T) {
	t.Parallel()
	eachCase(t, func(b rig, owner, name, what string, reset func()) {
		reset()
		before, alive := b.hash(), b.alive()
		b.run(calls(owner, newest)[name])
		after := b.hash()
		verb, shared := verbOf(name)
		if after["mode"] == "read" {
			for field, value := range after {
				n, err := strconv.ParseFloat(value, 64)
				if holds := slices.Contains(owners, field); holds != (err == nil) || n > 4 {
					t.Errorf("%s: the field %s of a hash that is held shared is %s", what, field, value)
				}
			}
		}
		switch {
		case before["mode"] == "write":
			if diff := cmp.Diff(before, after); diff != "" && verb != "force" {
				t.Errorf("%s: a write lock of Redisson is changed (-before +after):\n%s", what, diff)
			}
		case before["mode"] == "read":
			for _, holder := range owners {
				same := before[holder] == after[holder] && before[fieldOf(holder)] == after[fieldOf(holder)]
				if holder != owner && alive[holder] && !same && verb != "force" {
					t.Errorf("%s: %s holds the lock shared, and its part is changed: %v", what, holder, after)
				}
			}
			free := !slices.ContainsFunc(owners, func(holder string) bool { return alive[holder] })
			if diff := cmp.Diff(before, after); diff != "" && asks(name) && !shared && !free {
				t.Errorf("%s: a lock that is held shared is changed (-before +after):\n%s", what, diff)
			}
		case after["mode"] == "lock" || after["mode"] == "read":
		case asks(name) || verb == "hand":
			if after["fence"] != "" && after["fence"] != before["fence"] {
				t.Errorf("%s: a grant without a mode: %v", what, after)
			}
		}
		if after["fence"] == "" && after["mode"] == "lock" {
			t.Errorf("%s: a lock that Redisson has granted gets a mode: %v", what, after)
		}
	})
}

func (b rig) hash() map[string]string { return b.c.HGetAll(b.t.Context(), key).Val() }

// alive is which owners have a lease as shared holders.
func (b rig) alive() map[string]bool {
	keys := map[string]*redis.IntCmd{}
	_, _ = b.c.Pipelined(b.t.Context(), func(p redis.Pipeliner) error {
		for _, owner := range owners {
			keys[owner] = p.Exists(b.t.Context(), timeout(owner, 1), timeout(owner, 2))
		}
		return nil
	})
	all := map[string]bool{}
	for owner, n := range keys {
		all[owner] = n.Val() > 0
	}
	return all
}

// An acquire for a named owner adds one hold, unless it finds that it has made the grant, and a release of any session
// takes one. A drop ends a grant in which no other session has taken part.
func TestHoldsOfANamedOwnerAreCountedByOne(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	const new = me + ":100"
	for _, c := range []struct {
		state, call string
		holds, by   string // empty: the owner does not hold the lock
	}{
		{"free", "acquire", "1", new},
		{"free", "fair", "1", new},
		{"free", "crowd", "1", new},
		{"named, mine alone", "acquire", "2", "*"},
		{"named, mine alone", "acquire again", "2", mine},
		{"named, mine alone", "fair again", "2", mine},
		{"named, mine alone", "crowd stays", "2", mine},
		{"named, another session's", "acquire", "2", "*"},
		{"named, of two sessions", "acquire again", "4", "*"},
		{"named, Redisson's alone", "acquire", "3", "*"},
		{"named, mine twice", "release", "1", mine},
		{"named, of two sessions", "release", "2", "*"},
		{"named, mine alone", "release", "", ""},
		{"named, mine alone", "extend", "1", mine},
		{"named, another session's", "extend", "1", "*"},
		{"named, mine twice", "drop", "", ""},
		{"named, mine twice", "drop with grace", "2", mine},
		{"named, another session's", "drop", "1", other + ":5"},
		{"named, of two sessions", "drop", "3", "*"},
		{"named, of two sessions", "drop with grace", "3", "*"},
		{"shared, named, mine alone", "acquire", "1", mine}, // refused
		{"shared, named, mine alone", "share again", "2", mine},
		{"shared, named, mine alone", "share", "2", "*"},
		{"shared, named, of two sessions", "share in turn again", "4", "*"},
		{"shared, named, of two sessions", "shared release", "2", "*"},
		{"shared, named, another session's", "shared extend", "1", "*"},
		{"shared, named, with Redisson's", "shared release", "", ""},
		{"shared, named, with Redisson's", "shared drop", "", ""},
		{"shared, named, of two sessions", "shared drop", "3", "*"},
		{"named, of this version", "share", "2", "*"},
		{"named, of this version", "share again", "2", mine},
	} {
		b.reset(states[c.state])
		for range 2 {
			b.run(calls(named, newest)[c.call])
			hash := b.hash()
			by := hash["{by}"]
			if record, shared := hash[fieldOf(named)]; shared {
				_, by, _ = strings.Cut(record, " ")
			}
			if hash[named] != c.holds || by != c.by {
				t.Errorf("%s, %s: %s holds, by %s", c.call, c.state, hash[named], by)
			}
			if verb, _ := verbOf(c.call); verb == "release" || asks(c.call) && c.by != new {
				break // it is sent once
			}
		}
	}
}

// A late copy of a call finds the grant of its owner or none, and no other one.
func TestACallChangesNoGrantOfAnotherName(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	for name, call := range calls(me, newest) {
		switch call.Name() {
		case "force", "bound": // they mean any grant
			continue
		}
		for _, state := range []string{"another owner's", "another's, Redisson's", "shared, another's", "named, of two sessions", "shared, named, of two sessions"} {
			b.reset(states[state])
			before := b.hash()
			b.run(call)
			after := b.hash()
			for field, value := range before {
				if after[field] != value {
					t.Errorf("%s, %s: the field %s is %q, was %q", state, name, field, after[field], value)
				}
			}
			for _, lease := range []string{key, timeout(other, 1), timeout(named, 1)} {
				left := b.c.PTTL(t.Context(), lease).Val()
				if has := strings.HasPrefix(state, "shared") || lease == key; has && left > 0 && left < leaseMS*time.Millisecond-5*time.Second {
					t.Errorf("%s, %s: %s has %v left", state, name, lease, left)
				}
			}
		}
	}
}

// The usual answer to a hand-over is one number. It says what the long answer says, which a call for two waiters gets.
func TestAHandOverToTheOneThatIsNamedIsAnsweredInShort(t *testing.T) {
	t.Parallel()
	b := newRig(t)
	release := script.Release{Key: key, Part: part(me, newest, 0), Lease: 30 * time.Second}
	waiter := script.Acquire{Key: key, Part: script.Part{Owner: third, Holds: 1}, Lease: 30 * time.Second}
	plain := script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Plain: &waiter}
	fair := script.HandOver{Release: release, Wait: time.Minute, Crowd: place, Fair: &waiter, FairPlace: third}
	stays, both := plain, fair
	stays.Stays = true
	both.Plain = &script.Acquire{Key: key, Part: script.Part{Owner: other, Holds: 1}, Lease: 30 * time.Second}
	for name, c := range map[string]struct {
		script.HandOver
		queue  []string
		fence  int // in Redis
		short  bool
		status script.Status
		to     int64
		place  int64
	}{
		"plain":                       {plain, nil, fence, true, script.Freed, script.ToNamed, 0},
		"plain, in its turn":          {plain, []string{place, me}, fence, true, script.Freed, script.ToNamed, 0},
		"plain, and its turn goes on": {stays, []string{place, me}, fence, false, script.Freed, script.ToPlain, 1},
		"plain, out of turn":          {plain, []string{me}, fence, false, script.Freed, script.ToNobody, 2},
		"fair":                        {fair, []string{third, me}, fence, true, script.Freed, script.ToNamed, 0},
		"fair, without its place":     {fair, nil, fence, true, script.Freed, script.ToNamed, 0},
		"fair, out of turn":           {fair, []string{me}, fence, false, script.Freed, script.ToNobody, 0},
		"one of two":                  {both, []string{third}, fence, false, script.Freed, script.ToFair, 1},
		"of another grant":            {fair, []string{third}, fence + 1, false, script.OtherGrant, script.ToNobody, 0},
	} {
		b.reset([]any{me, 1, "fence", c.fence}, c.queue...)
		v := b.run(c.Call())
		got, err := release.Decode(v)
		if err != nil || (v.Kind == resp.Integer) != c.short || got.Status != c.status || got.To != c.to || got.Place != c.place || int(got.Fence) != c.fence {
			t.Errorf("%s: %+v, %v, of %v", name, got, err, v)
		}
		if granted := b.c.HGet(t.Context(), key, "fence").Val(); got.To != script.ToNobody && strconv.FormatInt(got.Granted, 10) != granted {
			t.Errorf("%s: fence %d, and %s in Redis", name, got.Granted, granted)
		}
	}
}
