package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Histories of their own are about one lock of permits: each client has several, each with a fence of its own. In some
// of them the lock is wanted exclusively and shared as well; see docs/LOCKS.md. Their plan and their rules are here;
// what may be lost with a primary is in loss_test.go.

const (
	permitKey      = "p"
	permitTimeouts = "{p}:timeout"
	permitRecords  = "{p}:permits"
	permitQueue    = "redisson_lock_queue:{p}"
)

// limit makes all commands of a plan ask for permits, and leaves out the faults that the rules below do not know.
func (p *plan) limit(rng *rand.Rand) {
	p.permits = true
	most, others := 1+rng.IntN(4), rng.IntN(3) == 0 // some ask for the same lock in another way
	p.actions = slices.DeleteFunc(p.actions, func(a action) bool {
		return slices.Contains([]string{"step", "evict", "flush", "force"}, a.kind)
	})
	for i := range p.actions {
		a := &p.actions[i]
		if a.kind != "send" {
			continue
		}
		verb, rest, _ := strings.Cut(a.line, " ")
		rest, _, _ = strings.Cut(rest, " OWNER ")
		a.line = verb + " " + permitKey + rest[1:]
		switch {
		case verb == "UNLOCK" || verb == "EXTENDLOCK":
		case others && rng.IntN(3) == 0:
			a.line += [...]string{"", " SHARED"}[rng.IntN(2)]
		default:
			a.line += fmt.Sprintf(" LIMIT %d", 1+rng.IntN(most))
		}
	}
}

// permits is what must be true of the lock after each step of a history.
type permits struct {
	w     *world
	was   picture // before the script in progress
	whole bool    // the lock was, before it
	// Permits by fence whose key a failover has lost, but not their records. The next acquire forgets them; their holders
	// hear of it by their next renewal.
	forgotten map[int64]bool
	room      map[*slot]time.Duration // since when a command that waits could have a permit
	typed     map[byte]time.Duration  // when a script found the key as a string, or as a hash, last
}

func newPermits(w *world) *permits {
	return &permits{
		w: w, room: map[*slot]time.Duration{}, typed: map[byte]time.Duration{},
		forgotten: map[int64]bool{},
	}
}

// whole reports whether no key of the lock is missing. A failover may lose some of them while the slot moves: then the
// permits end early, because the lock looks free, or like a semaphore of Redisson's, which keeps its TTL.
func (s *server) whole() bool {
	_, made := s.get(permitRecords).value("made")
	e := s.get(permitKey)
	there := e != nil && e.kind == 's'
	return there == made && there == (s.get(permitTimeouts) != nil)
}

// begin is before each script.
func (x *permits) begin(at *server) {
	x.was, x.whole = at.picture(permitKey), at.whole()
	if e := at.get(permitKey); e != nil {
		x.typed[e.kind] = x.w.now
	}
}

// ran judges what a script has done.
func (x *permits) ran(at *server, p *proxy, name string, args []string) {
	w, r, now := x.w, x.w.rules, at.picture(permitKey)
	counts := r.authority(at, permitKey)
	for _, key := range []string{permitKey, permitTimeouts, permitRecords} {
		if e := at.get(key); e != nil && e.expire == 0 {
			w.fail("a lock without TTL", "%s after %s", key, name)
		}
	}
	for _, was := range x.was.parts {
		own := names(args, was.owner)
		is, ok := now.part(was.owner)
		ends := own && (name == "release" || name == "handover" || name == "handover_limit" || name == "drop" || name == "lease_limit")
		for _, to := range now.parts {
			if before, _ := x.was.part(to.owner); x.whole && !(ends && !ok) && to.fence != before.fence && !to.beside(was) {
				w.fail("holders that exclude each other", "%s by %s, beside %s", to.owner, name, was.owner)
			}
		}
		switch {
		case was.expire <= at.ms():
		case !ok && name == "force" && args[1] == strconv.FormatInt(was.fence, 10): // by the handle, when its session has lost it
		case !ok && name == "acquire_limit" && !x.whole: // it forgets the permits of a key that is gone
			x.forgotten[was.fence] = true
		case !ok && !ends:
			w.fail("a lock was taken away", "%s by %s", was.owner, name)
		case !ok && name != "drop" && args[1] != "0" && args[1] != strconv.FormatInt(was.fence, 10):
			w.fail("another hold was released", "%s with fence %d by %s of %s", was.owner, was.fence, name, args[1])
		case own && !was.permit: // what its owner does to the rest of such a hold is judged in histories of their own
		case ok && is.fence != was.fence:
			w.fail("a fence was changed", "%s by %s: %d, now %d", was.owner, name, was.fence, is.fence)
		case ok && is.expire < was.expire && !(own && name == "lease_limit"):
			w.fail("a lease was cut short by another", "%s by %s", was.owner, name)
		}
	}
	if now.strange != "" {
		w.fail("a hash that Redisson must not meet", "after %s: %s", name, now.strange)
	}
	broken := !at.whole()
	for _, is := range now.parts {
		if is.expire == 0 {
			w.fail("a lock without TTL", "%s after %s", is.owner, name)
		}
		if e := at.get(permitKey); x.whole && (broken || e.expire < is.expire) {
			w.fail("a lock ends before the lease of a holder", "%s after %s", is.owner, name)
		}
		if names(args, is.owner) && name != "renew" && name != "renew_limit" {
			r.mayRenew(at, p, grant{permitKey, is.fence}, is.expire)
		}
		g := grant{permitKey, is.fence}
		was, _ := x.was.part(is.owner)
		switch {
		case broken, !counts && is.expire > was.expire:
			r.shorter[g] = true
		case strings.HasPrefix(name, "renew") && is.expire > was.expire:
			delete(r.shorter, g)
		}
		if was.fence == is.fence {
			continue
		}
		limit := int64(0)
		switch {
		case name == "acquire_limit":
			limit = whole(args[2])
		case name == "handover_limit" && args[6] == is.owner+"#":
			limit = whole(args[8])
		case name == "handover_limit":
			limit = whole(args[12])
		}
		if n := len(now.parts); x.whole && is.permit && int64(n) > limit {
			w.fail("too many permits", "%s by %s: %d, of %d", is.owner, name, n, limit)
		}
		if r.begins(at, g); counts {
			r.made[g] = w.now
		}
	}
	r.torn = r.torn || !counts && !x.was.equal(&now)
}

// names reports whether a script is told of the owner, or of a permit of it.
func names(args []string, owner string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == owner || strings.HasPrefix(a, owner+"#") })
}

// promoted judges what was lost with a primary.
func (x *permits) promoted(old, to *server) {
	r := x.w.rules
	before, after := old.picture(permitKey), to.picture(permitKey)
	r.torn = r.torn || !before.equal(&after) || !slices.Equal(old.queue(permitKey), to.queue(permitKey))
	for _, was := range before.parts {
		if now, _ := after.part(was.owner); now.expire < was.expire {
			r.shorter[grant{permitKey, was.fence}] = true
		}
	}
}

// sending names the permit that a command of a client with several is about.
func (x *permits) sending(c *client, s *slot) {
	if acquires(s.cmd.Verb) || len(c.permits) == 0 {
		return
	}
	b := c.permits[int(x.w.now.Microseconds())%len(c.permits)]
	s.order = parsed(fmt.Sprintf("%s FENCE %d", s.line, b.fence), s.pipelined)
	b.releasing = s.cmd.Verb == grammar.Unlock
}

// received is what the client learns from a reply.
func (x *permits) received(c *client, s *slot, v resp.Value) {
	delete(x.room, s)
	r := x.w.rules
	mine := c.belief(permitKey, s.cmd.Fence)
	text := string(v.Str)
	r.replied(c, s, v)
	again := c.belief(permitKey, v.Int)
	switch {
	case strings.HasPrefix(text, "WRONGTYPE"):
		other := byte('h')
		if s.cmd.Limit == 0 {
			other = 's'
		}
		if at, ok := x.typed[other]; acquires(s.cmd.Verb) && (!ok || at < s.sent) {
			x.w.fail("a type that the key does not have", "%s", s.line)
		}
	case strings.HasPrefix(text, "NOTSYNCED") && x.reenters(s):
		for _, b := range c.permits {
			b.until = min(b.until, s.sent+s.lease())
		}
	case x.reenters(s) && v.Kind == resp.Integer && again != nil:
		r.counts(c, s, again)
	case s.cmd.Verb == grammar.Unlock && v.Kind == resp.Integer && v.Int == 0:
		if mine != nil { // holds are left
			mine.releasing = false
		}
	case acquires(s.cmd.Verb) && v.Kind == resp.Integer:
		for _, other := range x.w.all { // a lost primary's successor, whose clock is behind, may come to the same microsecond
			if other.belief(permitKey, v.Int) != nil && (x.w.shape == single || x.w.smooth) {
				x.w.fail("a fence was given twice", "%d to %s and %s", v.Int, other, c)
			}
		}
		for _, b := range c.permits { // else as in client.received
			if _, counts := r.made[grant{permitKey, v.Int}]; b.fence > v.Int && counts && r.known(grant{permitKey, b.fence}) {
				x.w.fail("a fence went back", "%s: %s: %d after %d", c, s.line, v.Int, b.fence)
			}
		}
		// Else a primary that did not count had given that fence, by another clock.
		if _, known := c.over[grant{permitKey, v.Int}]; known && r.made[grant{permitKey, v.Int}] <= *c.overAt.of(permitKey) {
			x.w.fail("a grant came back", "%s: %s: fence %d was over", c, s.line, v.Int)
		}
		b := &belief{fence: v.Int, lock: s.cmd.Limit == 0}
		c.permits = append(c.permits, b)
		r.counts(c, s, b)
	case s.cmd.Verb == grammar.ExtendLock && v.Kind == resp.Integer:
		if mine != nil {
			mine.chosen = true
			mine.leased(s)
		}
	case x.reenters(s) && strings.HasPrefix(text, "LOSTLEASE"): // it was to deepen the hold that is lost
		for _, b := range slices.Clone(c.permits) {
			if b.lock {
				c.finished(permitKey, b.fence)
			}
		}
	case v.IsError() && (strings.HasPrefix(text, "NOTHELD") || strings.HasPrefix(text, "LOSTLEASE")), s.cmd.Verb == grammar.Unlock && v.Kind == resp.Integer:
		c.finished(permitKey, s.cmd.Fence)
	}
}

// reenters reports whether a command may be about a hold that its client has already: it can make the lease shorter.
func (x *permits) reenters(s *slot) bool { return acquires(s.cmd.Verb) && s.cmd.Limit == 0 }

// check is run after each step.
func (x *permits) check() {
	w, r := x.w, x.w.rules
	if !w.calm && !w.smooth {
		return
	}
	now := r.picture(permitKey).parts
	var waiting []*client
	for _, c := range w.clients {
		if s := c.current; s != nil && !c.ended && acquires(s.cmd.Verb) {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting { // beside others it may be behind one that wants more to be left
		s := c.current
		asked := stake{owner: c.owner(), permit: s.cmd.Limit > 0, shared: s.cmd.Shared}
		room := len(now) == 0 || len(waiting) == 1 && (!asked.permit || len(now) < s.cmd.Limit)
		for _, one := range now {
			room = room && asked.beside(one)
		}
		if !room {
			delete(x.room, s)
			continue
		}
		if _, ok := x.room[s]; !ok {
			x.room[s] = w.now
		}
		since := max(x.room[s], s.sent, r.settled, *r.short.of(permitKey), w.settledAt)
		if w.now-since > idleLimit && (w.calm || !w.moving) {
			w.fail("a waiter was forgotten", "%s, could have had a permit for %v", s.line, w.now-since)
		}
	}
}
