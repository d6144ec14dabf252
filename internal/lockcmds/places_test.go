package lockcmds

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// wait is the unit of deadlines in the fair queue, in milliseconds: Redisson's default.
const wait = 300000

// giveUp is what a Redisson client does when its time to wait is over: it takes its wait off everybody behind it.
func (r *redisson) giveUp() {
	r.t.Helper()
	n := locktest.NamesOf(r.key)
	r.eval(`
		local queue, found = redis.call('lrange', KEYS[1], 0, -1), false
		for _, owner in ipairs(queue) do
			if found then redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), owner) end
			found = found or owner == ARGV[1]
		end
		redis.call('zrem', KEYS[2], ARGV[1])
		redis.call('lrem', KEYS[1], 0, ARGV[1])`, []string{n.Queue, n.Deadlines}, r.owner, wait)
}

// Redisson's clients take their wait off all deadlines when one of them leaves the queue, and drop a head that is late.
// No place of ours is lost by that, nor one of theirs by what we do, in whatever order they come and go.
func TestPlacesOutliveRedissonsArithmetic(t *testing.T) {
	srv := redistest.Start(t)
	c, names := srv.Client(t), locktest.NamesOf("foo")
	run := func(call script.Call) (status int64) {
		args := make([]any, len(call.Args))
		for i, a := range call.Args {
			args[i] = a
		}
		answer, err := c.Eval(t.Context(), call.Text(), call.Keys, args...).Result()
		if err != nil {
			t.Fatalf("%s: %v", call.Name(), err)
		}
		if list, ok := answer.([]any); ok {
			return list[0].(int64)
		}
		return min(answer.(int64), 1) // a first grant is answered by its fence alone
	}
	part := func(owner string, holds int64) script.Part {
		return script.Part{Owner: owner, Holds: holds}
	}
	rng := rand.New(rand.NewPCG(7, 11))
	const members = 12
	their := make(map[string]*redisson)
	var owners []string
	for n := range members {
		owner := fmt.Sprintf("aaaaaaaa-0000-4000-8000-000000000000:%d", n)
		if n%2 == 0 {
			r := newRedisson(t, srv, n, "foo")
			owner, their[r.owner] = r.owner, r
		}
		owners = append(owners, owner)
	}
	ask := func(owner string) (granted bool) {
		if r := their[owner]; r != nil {
			return r.fair() == nil
		}
		return run(script.Attempt{
			Acquire: script.Acquire{Key: "foo", Part: part(owner, 1), Lease: 30 * time.Second}, Wait: wait * time.Millisecond,
			Way: script.AtOwnPlace, Place: owner, Enqueue: true,
		}.Call()) == 1
	}
	holder, queue := "", []string{}
	for step := range 1500 {
		owner := owners[rng.IntN(members)]
		at := slices.Index(queue, owner)
		var did string
		switch act := rng.IntN(4); {
		case owner == holder || act == 0 && holder != "":
			did, owner = "releases", holder
			if r := their[owner]; r != nil {
				r.fairRelease()
			} else {
				run(script.Release{Key: "foo", Part: part(owner, 0)}.Call())
			}
			holder = ""
			if len(queue) > 0 {
				holder, queue = queue[0], queue[1:]
				if !ask(holder) {
					t.Fatalf("step %d: %s releases, and the head %s does not get its turn", step, owner, holder)
				}
			}
		case at >= 0 && act == 1:
			did = "leaves"
			if r := their[owner]; r != nil {
				r.giveUp()
			} else {
				run(script.Leave{Key: "foo", Places: []string{names.PlaceOf(owner)}}.Call())
			}
			queue = slices.Delete(queue, at, at+1)
		case at < 0:
			did = "asks"
			if granted := ask(owner); granted != (holder == "") {
				t.Fatalf("step %d: %s asks: granted %t, the holder is %q", step, owner, granted, holder)
			}
			if holder == "" {
				holder = owner
			} else {
				queue = append(queue, owner)
			}
		default:
			did = "asks again"
			if ask(owner) {
				t.Fatalf("step %d: %s is let in before its turn", step, owner)
			}
		}
		if got := c.LRange(t.Context(), names.Queue, 0, -1).Val(); !slices.Equal(got, queue) {
			t.Fatalf("step %d: %s %s\nqueue %v\nwant  %v", step, owner, did, got, queue)
		}
		if n := c.ZCard(t.Context(), names.Deadlines).Val(); n != int64(len(queue)) {
			t.Fatalf("step %d: %s %s: %d deadlines for %d places", step, owner, did, n, len(queue))
		}
	}
	now := time.Now().UnixMilli()
	for _, z := range c.ZRangeWithScores(t.Context(), names.Deadlines, 0, -1).Val() {
		if z.Score < float64(now) || z.Score > float64(now+2*members*wait) {
			t.Errorf("the deadline of %v is %v ahead", z.Member, time.Duration(z.Score-float64(now))*time.Millisecond)
		}
	}
}

// granted returns the waiter that has been granted its lock.
func granted(t *testing.T, waiters []*session) (holder *session) {
	t.Helper()
	redistest.Eventually(t, patience, "a grant", func() bool {
		for _, w := range waiters {
			if len(w.Replies) > 0 {
				fenceIn(t, w.reply())
				holder = w
			}
		}
		return holder != nil
	})
	return holder
}

// commandCalls is how many commands Redis has executed, in scripts too.
func commandCalls(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	for _, stat := range strings.Split(srv.Client(t).Info(t.Context(), "commandstats").Val(), ":calls=")[1:] {
		calls, _, _ := strings.Cut(stat, ",")
		c, err := strconv.Atoi(calls)
		if err != nil {
			t.Fatal(err)
		}
		n += c
	}
	return n
}

// callsOf is how often one command was executed without an error.
func callsOf(t *testing.T, srv *redistest.Server, command string) (n int) {
	t.Helper()
	_, stat, _ := strings.Cut(srv.Client(t).Info(t.Context(), "commandstats").Val(), "cmdstat_"+command+":calls=")
	stat, _, _ = strings.Cut(stat, "\r") // without a line there were none
	for i, digits := range regexp.MustCompile(`^\d+|failed_calls=\d+`).FindAllString(stat, 2) {
		calls, err := strconv.Atoi(strings.TrimPrefix(digits, "failed_calls="))
		if err != nil {
			t.Fatal(err)
		}
		n += calls * (1 - 2*i)
	}
	return n
}

func TestGrantAmongManyFairWaitersCostsNoMoreThanAmongFew(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	holder := p.session(2)
	holder.fence("FAIRLOCK k")
	var waiters []*session
	for range 300 {
		w := p.session(2)
		w.send("FAIRLOCK k")
		waiters = append(waiters, w)
	}
	for _, w := range waiters {
		w.awaitWaiting()
	}
	p.awaitAttempts("k")
	before := commandCalls(t, p.srv)
	for range waiters {
		holder.want("UNLOCK k", ":1")
		holder = granted(t, waiters)
	}
	if n := commandCalls(t, p.srv) - before; n > 24*len(waiters) {
		t.Errorf("%d commands for %d grants", n, len(waiters))
	}
}
