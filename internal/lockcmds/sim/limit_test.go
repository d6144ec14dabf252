package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Histories of their own are about one lock of permits: each client has several, each with a fence of its own. Their plan and their rules are here.

const (
	permitKey      = "p"
	permitTimeouts = "{p}:timeout"
	permitRecords  = "{p}:permits"
	permitQueue    = "redisson_lock_queue:{p}"
)

// newPermitPlan makes the plan of a seed.
func newPermitPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	p := &plan{seed: seed, permits: true, shape: single, proxies: 1 + rng.IntN(3), clients: 2 + rng.IntN(5), calm: rng.IntN(3) == 0}
	p.length = between(50*time.Millisecond, short.length)
	spread := func() time.Duration {
		if rng.IntN(3) == 0 {
			return between(0, min(p.length, 20*time.Millisecond))
		}
		return between(0, p.length)
	}
	most := 1 + rng.IntN(4)
	send := func(at time.Duration, who int, line string) {
		p.actions = append(p.actions, action{at: at, kind: "send", who: who, line: line})
	}
	for range short.least + rng.IntN(2*short.spread) {
		at, who := spread(), rng.IntN(p.clients)
		line := [...]string{"LOCK", "LOCK", "TRYLOCK", "FAIRLOCK"}[rng.IntN(4)] + fmt.Sprintf(" %s LIMIT %d", permitKey, 1+rng.IntN(most))
		option := func(one int, text string, ms int) {
			if rng.IntN(one) == 0 {
				line += fmt.Sprintf(" %s %d", text, ms)
			}
		}
		option(2, "WAIT", rng.IntN(2)*rng.IntN(500)+rng.IntN(2)*rng.IntN(9000))
		option(5, "PX", 50+rng.IntN(4000))
		option(5, "GRACE", rng.IntN(2)*rng.IntN(1000))
		option(8, "MAXHOLD", 200+rng.IntN(5000))
		send(at, who, line)
		if rng.IntN(10) == 0 {
			send(at+between(0, 100*time.Millisecond), who, fmt.Sprintf("EXTENDLOCK %s PX %d", permitKey, 100+rng.IntN(5000)))
		}
		if rng.IntN(8) > 0 {
			if at += between(0, 30*time.Millisecond); rng.IntN(3) == 0 {
				at += between(0, short.held)
			}
			send(at, who, "UNLOCK "+permitKey)
		}
	}
	if !p.calm {
		faults := []string{"cut lane", "cut own", "cut sub", "stall lane", "stall own", "hang up", "kill", "pause", "outage"}
		for range 1 + rng.IntN(6) {
			a := action{at: spread(), kind: faults[rng.IntN(len(faults))], d: between(time.Millisecond, 300*time.Millisecond), n: rng.IntN(3), d2: between(0, 4*time.Second)}
			switch a.who = rng.IntN(p.proxies); a.kind {
			case "hang up":
				a.who = rng.IntN(p.clients)
			case "pause", "outage":
				a.d = between(10*time.Millisecond, 5*time.Second)
			}
			p.actions = append(p.actions, a)
		}
	}
	if rng.IntN(6) == 0 {
		p.repeats = time.Duration(1 + rng.Int64N(int64(100*time.Millisecond)))
	}
	slices.SortStableFunc(p.actions, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return p
}

// permits is what must be true of the lock after each step of a history.
type permits struct {
	w     *world
	was   map[string]permit           // before the script in progress, by member
	last  int64                       // fence
	known map[*client]map[int64]*held // what clients know to have, by fence
	dead  map[*held]time.Duration     // since when Redis does not have it
	room  map[*slot]time.Duration     // since when a command that waits could have a permit
}

// permit is what Redis has of one.
type permit struct {
	owner string
	fence int64
	ends  int64 // ms
}

// held is what a client knows of a permit.
type held struct {
	fence     int64
	releasing bool
	vague     bool // a command about it was -INDOUBT
}

func newPermits(w *world) *permits {
	return &permits{w: w, known: map[*client]map[int64]*held{}, dead: map[*held]time.Duration{}, room: map[*slot]time.Duration{}}
}

// permits are those whose leases last, if the string is there.
func (s *server) permits() map[string]permit {
	all := map[string]permit{}
	timeouts, records := s.get(permitTimeouts), s.get(permitRecords)
	if s.get(permitKey) == nil || timeouts == nil {
		return all
	}
	for member, score := range timeouts.zset {
		if int64(score) > s.ms() {
			record, _ := records.value(member)
			one := permit{owner: member[:strings.LastIndexByte(member, '#')], ends: int64(score)}
			one.fence, _ = recorded(record)
			all[member] = one
		}
	}
	return all
}

// begin is before each script.
func (x *permits) begin(at *server) { x.was = at.permits() }

// ran judges what a script has done.
func (x *permits) ran(at *server, p *proxy, name string, args []string) {
	w, now := x.w, at.permits()
	for _, key := range []string{permitKey, permitTimeouts, permitRecords} {
		if e := at.get(key); e != nil && e.expire == 0 {
			w.fail("a lock without TTL", "%s after %s", key, name)
		}
	}
	for member, was := range x.was {
		own := slices.Contains(args, was.owner)
		is, ok := now[member]
		switch {
		case was.ends <= at.ms():
		case !ok && !(own && (name == "release" || name == "handover_limit" || name == "drop")):
			w.fail("a lock was taken away", "permit %s by %s", member, name)
		case !ok && name != "drop" && args[1] != "0" && args[1] != strconv.FormatInt(was.fence, 10):
			w.fail("another permit was released", "%s with fence %d by %s of %s", member, was.fence, name, args[1])
		case ok && is.fence != was.fence:
			w.fail("a fence was changed", "permit %s by %s: %d, now %d", member, name, was.fence, is.fence)
		case ok && is.ends < was.ends && !(own && (name == "extend" || name == "drop")):
			w.fail("a lease was cut short by another", "permit %s by %s", member, name)
		}
	}
	for member, is := range now {
		if e := at.get(permitKey); e.expire < is.ends {
			w.fail("a lock ends before the lease of a holder", "%s after %s", member, name)
		}
		if slices.Contains(args, is.owner) && name != "renew" {
			id := renewable{p, grant{permitKey, is.fence}}
			w.rules.ok[id] = max(w.rules.ok[id], is.ends)
		}
		if _, held := x.was[member]; held {
			continue
		}
		limit := int64(0)
		switch {
		case name == "acquire_limit":
			limit = whole(args[3])
		case name == "handover_limit" && args[6] == is.owner && strings.HasSuffix(member, args[8]):
			limit = whole(args[10])
		case name == "handover_limit":
			limit = whole(args[15])
		}
		if int64(len(now)) > limit {
			w.fail("too many permits", "%s by %s: %d, of %d", member, name, len(now), limit)
		}
		if is.fence <= x.last {
			w.fail("a fence went back", "%s: %d after %d", member, is.fence, x.last)
		}
		x.last = is.fence
	}
}

// sending names the permit that a command of a client with several is about.
func (x *permits) sending(c *client, s *slot) {
	s.side = permitKey
	if acquires(s.cmd.Verb) || len(x.known[c]) == 0 {
		return
	}
	fences := slices.Sorted(maps.Keys(x.known[c]))
	fence := fences[int(x.w.now.Microseconds())%len(fences)]
	o := parsed(fmt.Sprintf("%s FENCE %d", s.line, fence), s.pipelined)
	s.order = o
	if s.cmd.Verb == grammar.Unlock {
		x.known[c][fence].releasing = true
	}
}

// received is what the client learns from a reply.
func (x *permits) received(c *client, s *slot, v resp.Value) {
	delete(x.room, s)
	mine := x.known[c][s.cmd.Fence]
	text := string(v.Str)
	switch {
	case strings.HasPrefix(text, "INDOUBT"):
		c.blurred[0] = true
		if mine != nil {
			mine.vague = true
		}
	case acquires(s.cmd.Verb) && v.Kind == resp.Integer:
		for other, all := range x.known {
			if all[v.Int] != nil {
				x.w.fail("a fence was given twice", "%d to %s and %s", v.Int, other, c)
			}
		}
		if x.known[c] == nil {
			x.known[c] = map[int64]*held{}
		}
		x.known[c][v.Int] = &held{fence: v.Int}
	case v.IsError() && (strings.HasPrefix(text, "NOTHELD") || strings.HasPrefix(text, "LOSTLEASE")), s.cmd.Verb == grammar.Unlock && v.Kind == resp.Integer:
		x.over(c, s.cmd.Fence)
	}
}

// over notes that a permit is, as the client knows.
func (x *permits) over(c *client, fence int64) {
	delete(x.dead, x.known[c][fence])
	delete(x.known[c], fence)
	c.over[grant{permitKey, fence}] = struct{}{}
}

// giveBack has a client release one permit.
func (x *permits) giveBack(c *client) {
	if len(x.known[c]) > 0 {
		c.send(parsed("UNLOCK "+permitKey, false))
	}
}

// check is run after each step.
func (x *permits) check() {
	w := x.w
	now := x.now()
	for _, c := range w.clients {
		for fence, b := range x.known[c] {
			if _, ok := now[fence]; ok || c.ended || c.p.killed || b.releasing || b.vague || c.current != nil {
				delete(x.dead, b)
				continue
			}
			from, ok := x.dead[b]
			if !ok {
				from = w.now
			}
			if x.dead[b] = max(from, c.p.pausedUntil); w.now-x.dead[b] > debtLimit {
				w.fail("a client counts on a lease that has ended", "%s, fence %d, for %v", c, fence, w.now-x.dead[b])
			}
		}
	}
	if !w.calm {
		return
	}
	var waiting []*slot
	for _, c := range w.clients {
		if s := c.current; s != nil && !c.ended && acquires(s.cmd.Verb) {
			waiting = append(waiting, s)
		}
	}
	for _, s := range waiting { // beside others it may be behind one that wants more to be left
		if len(now) > 0 && (len(waiting) > 1 || len(now) >= s.cmd.Limit) {
			delete(x.room, s)
			continue
		}
		if _, ok := x.room[s]; !ok {
			x.room[s] = w.now
		}
		if since := max(x.room[s], s.sent, w.rules.settled); w.now-since > idleLimit {
			w.fail("a waiter was forgotten", "%s, could have had a permit for %v", s.line, w.now-since)
		}
	}
}

// now is what Redis has, by fence.
func (x *permits) now() map[int64]permit {
	all := map[int64]permit{}
	for _, one := range x.w.servers[0].permits() {
		all[one.fence] = one
	}
	return all
}

// agree judges whether clients, engines and Redis tell the same.
func (x *permits) agree() string {
	now, engines := x.now(), map[int64]bool{}
	for _, p := range x.w.proxies {
		for _, l := range p.engine.Held(0) {
			engines[l.Fence] = true
			if _, ok := now[l.Fence]; !ok {
				return fmt.Sprintf("%s knows fence %d of %s, and redis does not", p, l.Fence, l.Owner)
			}
		}
	}
	for _, one := range now {
		if !engines[one.fence] {
			return fmt.Sprintf("redis has fence %d of %s, and no engine knows", one.fence, one.owner)
		}
	}
	for _, c := range x.w.clients {
		for fence, b := range x.known[c] {
			if !c.ended && !b.vague && !engines[fence] {
				return fmt.Sprintf("%s has fence %d, and no engine knows", c, fence)
			}
		}
	}
	return ""
}

// gone judges whether nothing is left.
func (x *permits) gone() {
	for _, key := range []string{permitKey, permitTimeouts, permitRecords} {
		if x.w.servers[0].get(key) != nil {
			x.w.fail("a lock was left behind", "%s", key)
		}
	}
	if e := x.w.servers[0].get(permitQueue); e != nil && !x.w.rules.torn {
		for _, place := range e.list {
			if slices.ContainsFunc(x.w.proxies, func(p *proxy) bool { return strings.HasPrefix(place, p.uuid) }) {
				x.w.fail("a place was left behind", "%s", place)
			}
		}
	}
}

func TestHistoriesOfPermits(t *testing.T) {
	play := func(seed uint64) bool {
		w := newPermitPlan(seed).play(false)
		if w.broken != "" {
			report(t, newPermitPlan(seed), w.broken)
		}
		return w.broken == ""
	}
	if *seedFlag != 0 && *timeFlag == 0 {
		play(*seedFlag)
		return
	}
	playAll(fixed/4, *timeFlag/4, play)
}
