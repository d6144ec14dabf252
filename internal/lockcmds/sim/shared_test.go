package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// One lock of some histories is held shared as well as exclusively. Its rules are here.

const sharedKey = "s"

// leases is what the keys with the leases of shared holders begin with.
const leases = "{s}:"

// isShared reports whether a key belongs to the lock.
func isShared(key string) bool {
	return key == sharedKey || strings.HasPrefix(key, leases) || key == queues[place(sharedKey)]
}

// beliefs are what the client knows to hold of a lock; nil: nothing on that side.
func (c *client) beliefs(key string) []*belief {
	if key == permitKey {
		return c.permits
	}
	return c.holds[place(key) : place(key)+1]
}

// belief is what the client knows of a grant; nil: it does not count on it.
func (c *client) belief(key string, fence int64) *belief {
	for _, b := range c.beliefs(key) {
		if b != nil && b.fence == fence {
			return b
		}
	}
	return nil
}

// anyBelief is what the client knows to hold of a lock; nil: nothing.
func (c *client) anyBelief(key string) *belief {
	for _, b := range c.beliefs(key) {
		if b != nil {
			return b
		}
	}
	return nil
}

// renewal is one lease of a renewal.
type renewal struct {
	grant
	owner string
	lease int64 // ms
}

// renewed are the leases that a script renews. Its keys are pairs if it is about shared holds, and those of a lock with
// permits are four.
func renewed(name string, keys, args []string) (all []renewal) {
	at := func(lock int, of []string) {
		all = append(all, renewal{grant{keys[lock], whole(of[1])}, of[0], whole(of[2])})
	}
	switch n := len(args) / 4; name {
	case "renew":
		for i := range n {
			at(i*(len(keys)/n), args[4*i:])
		}
	case "renew_limit":
		for ; len(args) > 0; args = args[5:] {
			at(4*int(whole(args[0])-1), args[1:])
		}
	}
	return all
}

// has reports whether the server that counts has a grant.
func (r *rules) has(g grant) bool {
	switch g.key {
	case permitKey:
		_, ok := r.permits()[g.fence]
		return ok
	case sharedKey:
	default:
		return r.holder(g.key).fence == g.fence
	}
	now := r.find(sharedKey).picture()
	return slices.ContainsFunc(now.parts, func(p stake) bool { return p.fence == g.fence })
}

// share has a part of the commands of a history ask for the lock that may be held shared.
func (p *plan) share(rng *rand.Rand) {
	if rng.IntN(4) > 0 {
		return
	}
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	var more []action
	last, mine, shared := "", false, false // of the latest acquire
	for i := range p.actions {
		a := &p.actions[i]
		switch verb, rest, _ := strings.Cut(a.line, " "); {
		case a.kind == "evict" || a.kind == "force":
			if rng.IntN(2) == 0 {
				a.line = sharedKey
			} else if a.kind == "evict" && rng.IntN(2) == 0 {
				a.line = queues[place(sharedKey)]
			}
		case a.kind != "send":
		case verb == "UNLOCK" || verb == "EXTENDLOCK":
			if !mine {
				continue
			}
			a.line = verb + " " + sharedKey + rest[1:]
			if shared && rng.IntN(2) == 0 {
				a.line += " SHARED"
			}
		default:
			if again := a.line == last; !again {
				last, mine = a.line, rng.IntN(5) > 0
			}
			if !mine {
				continue
			}
			shared = rng.IntN(5) < 3
			a.line = verb + " " + sharedKey + rest[1:]
			other := *a // in the other mode, for an owner that holds the lock already
			if shared {
				a.line += " SHARED"
			} else {
				other.line += " SHARED"
			}
			if rng.IntN(4) == 0 {
				other.at += between(0, 30*time.Millisecond)
				gives := action{at: other.at + between(0, 100*time.Millisecond), kind: "send", who: other.who, line: "UNLOCK " + sharedKey}
				if f := strings.Fields(a.line); slices.Contains(f, "OWNER") {
					gives.line += " OWNER " + f[slices.Index(f, "OWNER")+1]
				}
				more = append(more, other, gives)
			}
		}
	}
	if p.calm && rng.IntN(3) == 0 { // holders come and go while somebody wants the lock for itself
		begin := between(0, p.length)
		for who := range min(p.clients-1, 4) {
			for at := begin + between(0, 10*time.Millisecond); at < begin+200*time.Millisecond; at += between(5*time.Millisecond, 60*time.Millisecond) {
				verb := [...]string{"LOCK ", "FAIRLOCK "}[rng.IntN(2)]
				more = append(more,
					action{at: at, kind: "send", who: who, line: verb + sharedKey + " SHARED"},
					action{at: at + between(time.Millisecond, 40*time.Millisecond), kind: "send", who: who, line: "UNLOCK " + sharedKey})
			}
		}
		at := begin + between(0, 100*time.Millisecond)
		verb := [...]string{"LOCK ", "FAIRLOCK "}[rng.IntN(2)]
		more = append(more,
			action{at: at, kind: "send", who: p.clients - 1, line: verb + sharedKey},
			action{at: at + time.Millisecond, kind: "send", who: p.clients - 1, line: "UNLOCK " + sharedKey})
	}
	p.actions = append(p.actions, more...)
}

// picture is what a server has of the lock.
type picture struct {
	exists  bool
	shared  bool // in the form of Redisson's read lock
	expire  int64
	parts   []stake // of holders whose leases last
	strange string  // what the hash must not have; empty: nothing
}

// stake is one owner's part in the lock.
type stake struct {
	owner       string
	shared      bool
	fence       int64
	holds       int64
	expire      int64
	by          string // {by}
	leaseMisses bool   // its key has no time to live
}

// expireAll removes keys that have expired, by the beginnings of their names.
func (s *server) expireAll(beginnings ...string) {
	now := s.ms()
	for _, one := range slices.Backward(s.keys) {
		begins := func(name string) bool { return strings.HasPrefix(one.key, name) }
		if one.expire != 0 && one.expire <= now && slices.ContainsFunc(beginnings, begins) {
			s.get(one.key)
		}
	}
}

// timeouts are the keys with the leases of shared holders.
func (s *server) timeouts() (all []string) {
	for _, one := range slices.Clone(s.keys) {
		if strings.HasPrefix(one.key, leases) && s.get(one.key) != nil {
			all = append(all, one.key)
		}
	}
	return all
}

func (s *server) picture() picture { return pictureOf(s.get, sharedKey) }

func pictureOf(get func(key string) *entry, lock string) (p picture) {
	e := get(lock)
	if e == nil || e.kind != 'h' {
		return p
	}
	p.exists, p.expire = true, e.expire
	mode, _ := e.value("mode")
	p.shared = mode == "read"
	alone := stake{expire: e.expire}
	for i := 0; i < len(e.hash); i += 2 {
		field, text := e.hash[i], e.hash[i+1]
		switch {
		case field == "mode":
		case !p.shared && field == "fence":
			alone.fence = whole(text)
		case !p.shared && field == "{by}":
			alone.by = text
		case !p.shared && field[0] == '{':
		case !p.shared:
			if alone.owner != "" {
				p.strange = "two exclusive holders"
			}
			alone.owner, alone.holds = field, whole(text)
		case field == "fence":
			p.strange = "the field " + field + " beside shared holders"
		case field[0] == '{':
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				p.strange = "a record that is a number: " + text
			}
		default:
			if whole(text) < 1 || whole(text) > 100 {
				p.strange = field + " holds the lock " + text + " times"
			}
			lease := get("{" + lock + "}:" + field + ":rwlock_timeout:1")
			if lease == nil {
				continue // it does not count
			}
			part := stake{owner: field, shared: true, holds: whole(text), expire: lease.expire, leaseMisses: lease.expire == 0}
			record, _ := e.value("{" + field + "}")
			part.fence, part.by = recorded(record)
			p.parts = append(p.parts, part)
		}
	}
	if !p.shared {
		p.parts = append(p.parts, alone)
	}
	return p
}

// recorded reads "#fence rest".
func recorded(text string) (fence int64, rest string) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(text, "#"), " ")
	return whole(first), rest
}

// part is the part of an owner.
func (p *picture) part(owner string) (found stake, ok bool) {
	for _, one := range p.parts {
		if one.owner == owner {
			return one, true
		}
	}
	return found, false
}

// partOf is the latest part of a session.
func (p *picture) partOf(session string) (found stake, ok bool) {
	for _, one := range p.parts {
		if who(one.owner) == session && one.fence >= found.fence {
			found, ok = one, true
		}
	}
	return found, ok
}

// sharing is what must be true of the lock after each step of a history.
type sharing struct {
	w     *world
	taken bool     // the next fields are those before the script in progress
	was   picture  //
	queue []string //

	passed map[passing]int           // in a calm history: how often an exclusive waiter was overtaken by the same newcomer
	dead   map[*belief]time.Duration // since when Redis does not have what a client counts on
	free   since                     // the lock has no holder
	open   since                     // it is held shared, and nobody wants it for itself
	grants map[int64]bool            // by fence: whether it was made shared
}

// passing is a command that waits in a place, and an owner that came later.
type passing struct {
	waits        *slot
	place, owner string
}

// since is when a condition became true.
type since struct {
	is bool
	at time.Duration
}

func (s *since) note(is bool, now time.Duration) {
	if s.is != is {
		*s = since{is, now}
	}
}

func newSharing(w *world) *sharing {
	return &sharing{w: w, passed: map[passing]int{}, dead: map[*belief]time.Duration{}, grants: map[int64]bool{}}
}

// begin is before each script: the end of a lease is no work of the script.
func (x *sharing) begin(at *server) { at.expireAll(sharedKey, leases) }

// writes is told of a key that a script is about to write.
func (x *sharing) writes(at *server, key string) {
	if !x.taken && isShared(key) {
		x.taken, x.was, x.queue = true, at.picture(), at.queue(sharedKey)
	}
}

// sharedCall is what the rules must know of a call of a script.
type sharedCall struct {
	name string
	args []string
}

func (c *sharedCall) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// owns reports whether the call is of that owner, or for it.
func (c *sharedCall) owns(owner string) bool { return slices.Contains(c.args, owner) }

// ran judges what a script has done to the lock.
func (x *sharing) ran(at *server, p *proxy, name string, keys, args []string) {
	w, r := x.w, x.w.rules
	taken, before := x.taken, x.was
	x.taken = false
	if !slices.Contains(keys, sharedKey) {
		return
	}
	c := sharedCall{name: name, args: args}
	after := at.picture()
	if taken {
		x.executed(at, p, &c, &before, &after)
	}
	if name != "renew" { // the answer to a copy confirms the lease to its owner
		for _, part := range after.parts {
			if c.owns(part.owner) {
				id := renewable{p, grant{sharedKey, part.fence}}
				r.ok[id] = max(r.ok[id], part.expire-at.ahead.Milliseconds())
			}
		}
	}
	if taken && w.shape != single && !r.authority(at, sharedKey) {
		*r.lossy.of(sharedKey), r.torn = true, true
	}
}

func (x *sharing) executed(at *server, p *proxy, c *sharedCall, before, after *picture) {
	w, r := x.w, x.w.rules
	if c.name == "force" {
		r.disturb(sharedKey)
	}
	switch {
	case after.strange != "":
		w.fail("a hash that Redisson must not meet", "after %s: %s", c.name, after.strange)
	case after.exists && after.expire == 0:
		w.fail("a lock without TTL", "%s after %s", sharedKey, c.name)
	}
	for _, part := range after.parts {
		switch {
		case part.leaseMisses:
			w.fail("a lock without TTL", "%s of %s after %s", sharedKey, part.owner, c.name)
		case part.expire > after.expire:
			w.fail("a lock ends before the lease of a holder", "%s of %s after %s: %d ms", sharedKey, part.owner, c.name, part.expire-after.expire)
		}
	}
	if _, ok := fieldAt[c.name]; ok && !owned(c.arg(0)) && r.authority(at, sharedKey) {
		part, _ := after.part(c.arg(0))
		r.lasts(at, c.name, c.args, sharedKey, part.fence, part.expire)
	}
	x.left(at, c, after)
	for _, part := range before.parts {
		x.kept(c, part, after)
	}
	r.named(at, c.name, c.args, sharedKey, before.namedOf(c.arg(0)), after.namedOf(c.arg(0)))
	var granted []stake
	for _, part := range after.parts {
		was, held := before.part(part.owner)
		if !held || was.fence != part.fence {
			granted = append(granted, part)
		}
	}
	for _, part := range granted {
		x.granted(at, c, part, before)
	}
	if !r.authority(at, sharedKey) {
		x.doomed(before, after)
		return
	}
	for _, part := range granted {
		g := grant{sharedKey, part.fence}
		*r.granted.of(sharedKey), r.made[g] = w.now, w.now
		x.owed(part)
	}
	for _, part := range before.parts {
		if now, ok := after.part(part.owner); ok && now.expire < part.expire {
			*r.short.of(sharedKey) = w.now + lease // nobody tells waiters of that
		} else if ok && c.name == "renew" && now.expire > part.expire {
			delete(r.shorter, grant{sharedKey, part.fence})
		}
	}
}

// left judges that no lease is left without its holder.
func (x *sharing) left(at *server, c *sharedCall, after *picture) {
	if *x.w.rules.upset.of(sharedKey) != -never || x.w.shape != single {
		return
	}
	for _, key := range at.timeouts() {
		owner, _, _ := strings.Cut(key[len(leases):], ":rwlock_timeout")
		if _, ok := after.part(owner); !ok || !after.shared {
			x.w.fail("the lease of a holder was left behind", "%s after %s", key, c.name)
		}
	}
}

// kept judges that a script takes nothing from other owners, and that a hold keeps its mode.
func (x *sharing) kept(c *sharedCall, part stake, after *picture) {
	now, ok := after.part(part.owner)
	if ok && now.fence == part.fence && now.shared != part.shared {
		x.w.fail("a hold changed its mode", "%s of %s by %s", sharedKey, part.owner, c.name)
	}
	switch {
	case c.name == "force", c.owns(part.owner):
	case !ok:
		x.w.fail("a lock was taken away", "%s from %s by %s", sharedKey, part.owner, c.name)
	case now.fence != part.fence || now.holds != part.holds:
		x.w.fail("holds were changed by another", "%s of %s by %s", sharedKey, part.owner, c.name)
	case now.expire < part.expire:
		x.w.fail("a lease was cut short by another", "%s of %s by %s: %d ms", sharedKey, part.owner, c.name, part.expire-now.expire)
	}
}

// granted judges a grant: its fence, who else holds the lock, and who was first.
func (x *sharing) granted(at *server, c *sharedCall, part stake, before *picture) {
	w, r := x.w, x.w.rules
	if last := *at.fences.of(sharedKey); r.back(sharedKey, last, part.fence) || part.fence < at.micros() {
		w.fail("a fence went back", "%s: %d after %d, at %d", sharedKey, part.fence, last, at.micros())
	}
	g := grant{sharedKey, part.fence}
	at.learn(g)
	at.begun = append(at.begun, g)
	x.grants[part.fence] = part.shared
	if !owned(part.owner) {
		r.takers[g], r.servers[g] = []string{sessionOf(part.by)}, at
	}
	for _, other := range before.parts {
		if other.owner != part.owner && (!other.shared || !part.shared) && !c.owns(other.owner) && c.name != "force" {
			w.fail("an exclusive holder beside another", "%s: %s by %s, beside %s", sharedKey, part.owner, c.name, other.owner)
		}
		if other.owner == part.owner && other.shared != part.shared {
			w.fail("a holder got the lock in the other mode, too", "%s: %s by %s", sharedKey, part.owner, c.name)
		}
		if other.owner == part.owner {
			return // it goes ahead
		}
	}
	if !part.shared || !before.shared || len(before.parts) == 0 {
		return
	}
	left := at.queue(sharedKey)
	if len(x.queue) > 0 && x.queue[0] != c.arg(6) && slices.Contains(left, x.queue[0]) {
		w.fail("a waiter was overtaken by a shared newcomer", "%s: %s waits before %s", sharedKey, x.queue[0], part.owner)
	}
	if !w.calm {
		return
	}
	for _, waits := range w.clients {
		s := waits.current
		came := func(c *client) bool {
			return c.current != nil && ownerOf(c, c.current) == who(part.owner) && c.current.sent < s.sent
		}
		if s == nil || !x.wantsAlone(waits, s) || s.cmd.Owner != "" || slices.ContainsFunc(w.clients, came) {
			continue
		}
		isPlace := func(place string) bool {
			return who(place) == ownerOf(waits, s) || strings.HasPrefix(place, waits.p.uuid+":plain-")
		}
		if at := slices.IndexFunc(x.queue, isPlace); at >= 0 {
			k := passing{s, x.queue[at], part.owner}
			if x.passed[k]++; x.passed[k] > mostPassed {
				w.fail("an exclusive waiter was overtaken again and again", "%s: %s, by %s", waits, s.line, part.owner)
			}
		}
	}
}

// mostPassed is how often a waiter may be overtaken by the same newcomer: in a turn that had begun, and in the next
// one.
const mostPassed = 2

// wantsAlone reports whether a client waits to be the only holder.
func (x *sharing) wantsAlone(c *client, s *slot) bool {
	return !c.ended && s.cmd.Key == sharedKey && !s.cmd.Shared && acquires(s.cmd.Verb)
}

// ownerOf is for whom a command acquires.
func ownerOf(c *client, s *slot) string {
	if s.cmd.Owner != "" {
		return s.cmd.Owner
	}
	return c.owner()
}

// doomed notes what a primary has done that does not count any more.
func (x *sharing) doomed(before, after *picture) {
	for _, part := range after.parts {
		if was, ok := before.part(part.owner); !ok || part.expire > was.expire {
			x.w.rules.shorter[grant{sharedKey, part.fence}] = true
		}
	}
}

// promoted judges what was lost with a primary.
func (x *sharing) promoted(old, to *server) {
	w, r := x.w, x.w.rules
	before, after := old.picture(), to.picture()
	if fmt.Sprint(before) != fmt.Sprint(after) || !slices.Equal(old.queue(sharedKey), to.queue(sharedKey)) {
		*r.lossy.of(sharedKey), r.torn = true, true
	}
	for _, part := range before.parts {
		if now, ok := after.part(part.owner); !ok || now.fence != part.fence || now.expire < part.expire {
			r.shorter[grant{sharedKey, part.fence}] = true
		}
	}
	if !w.smooth {
		*r.short.of(sharedKey) = max(*r.short.of(sharedKey), w.now+lease)
	}
}

// owed notes who counts on the lock beside a holder that Redis has granted it to.
func (x *sharing) owed(to stake) {
	r := x.w.rules
	for _, c := range x.w.clients {
		for _, b := range c.beliefs(sharedKey) {
			if b == nil || b.released || c.ended || c.p.killed || b.fence >= to.fence || c.owner() == who(to.owner) || x.grants[b.fence] && to.shared {
				continue
			}
			g := grant{sharedKey, b.fence}
			if !r.known(g) || r.shorter[g] || *r.upset.of(sharedKey) >= r.made[g] {
				continue
			}
			r.debts = append(r.debts, debt{c, sharedKey, b.fence, x.w.now + debtLimit, to.fence})
		}
	}
}

// check is run after each step. Its limits are long, so it looks at some of them.
func (x *sharing) check() {
	w := x.w
	if w.steps%4 != 0 {
		return
	}
	now := w.rules.find(sharedKey).picture()
	x.alive(&now)
	if w.calm || w.smooth {
		x.progress(&now)
	}
}

// alive judges that Redis has what clients count on.
func (x *sharing) alive(now *picture) {
	w, r := x.w, x.w.rules
	for _, c := range w.clients {
		for _, b := range c.beliefs(sharedKey) {
			if b == nil {
				continue
			}
			g := grant{sharedKey, b.fence}
			if slices.ContainsFunc(now.parts, func(p stake) bool { return p.fence == b.fence }) {
				delete(x.dead, b)
				continue
			}
			excused := c.ended || c.p.killed || b.vague || b.releasing || b.released || c.asks(sharedKey) || w.moving ||
				*r.upset.of(sharedKey) >= r.made[g] || *r.lossy.of(sharedKey) || r.shorter[g] || !r.known(g)
			if _, ended := r.handled[g]; ended || excused {
				delete(x.dead, b)
				continue
			}
			from, ok := x.dead[b]
			if !ok {
				from = w.now
			}
			x.dead[b] = max(from, c.p.pausedUntil)
			if w.now-x.dead[b] > endedLimit {
				w.fail("a client counts on a lease that has ended", "%s of %s, fence %d, for %v", sharedKey, c, b.fence, w.now-x.dead[b])
			}
		}
	}
}

// progress judges that no waiter is forgotten that could have the lock.
func (x *sharing) progress(now *picture) {
	w, r := x.w, x.w.rules
	wanted := slices.ContainsFunc(w.clients, func(c *client) bool { return c.current != nil && x.wantsAlone(c, c.current) })
	x.free.note(!now.exists, w.now)
	x.open.note(now.shared && len(now.parts) > 0 && !wanted, w.now)
	for _, c := range w.clients {
		s := c.current
		if s == nil || c.ended || s.cmd.Key != sharedKey || !acquires(s.cmd.Verb) {
			continue
		}
		from, could := x.free.at, x.free.is
		switch {
		case could:
		case s.cmd.Shared:
			from, could = x.open.at, x.open.is
		}
		last := max(from, s.sent, r.settled, *r.short.of(sharedKey), w.settledAt)
		if could && w.now-last > idleLimit && (w.calm || !w.moving) {
			w.fail("a waiter was forgotten", "%s: %s, could have had the lock for %v", c, s.line, w.now-last)
		}
	}
}

// agree judges whether clients, engines and Redis tell the same, as rules.agree does.
func (x *sharing) agree() string {
	w, r := x.w, x.w.rules
	now := r.find(sharedKey).picture()
	lossy := *r.lossy.of(sharedKey)
	for _, c := range w.clients {
		for _, b := range c.beliefs(sharedKey) {
			if b == nil || c.ended || b.vague {
				continue
			}
			part, _ := now.partOf(c.owner())
			if part.fence != b.fence || part.holds != b.count && !lossy {
				return fmt.Sprintf("%s: %s knows %d holds with fence %d, redis has %+v", sharedKey, c, b.count, b.fence, now.parts)
			}
		}
	}
	known := map[string]bool{}
	for _, p := range w.proxies {
		for _, l := range p.engine.List(0) {
			if l.Key != sharedKey {
				continue
			}
			known[l.Owner] = true
			is := func(part stake) bool {
				return part.owner == l.Owner && part.fence == l.Fence && (part.holds == l.Holds || lossy)
			}
			if owned(l.Owner) && !r.blurred(sharedKey, l.Owner) && !slices.ContainsFunc(now.parts, is) {
				return fmt.Sprintf("%s: %s knows %d holds of %s with fence %d, redis has %+v", sharedKey, p, l.Holds, l.Owner, l.Fence, now.parts)
			}
		}
	}
	for _, part := range now.parts {
		if !known[part.owner] && owned(part.owner) && !lossy {
			return fmt.Sprintf("%s: redis has %+v, and no engine knows", sharedKey, part)
		}
	}
	return ""
}
