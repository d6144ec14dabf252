package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// One lock of some histories is held shared as well as exclusively. Its plan, and the rules of its own, are here.

const sharedKey = "s"

// leases is what the keys with the leases of shared holders begin with.
const leases = "{s}:"

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
	now := r.picture(g.key)
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
	permit      bool
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

func (s *server) picture(key string) picture { return pictureOf(s.get, s.ms(), key) }

// picture is what the servers that count have of a lock. The keys of one with permits may be on two of them.
func (r *rules) picture(key string) picture {
	if key == permitKey {
		return pictureOf(r.get, r.find(key).ms(), key)
	}
	return r.find(key).picture(key)
}

func pictureOf(get func(key string) *entry, now int64, lock string) (p picture) {
	if timeouts := get(permitTimeouts); lock == permitKey && timeouts != nil {
		records := get(permitRecords)
		for _, member := range slices.Sorted(maps.Keys(timeouts.zset)) {
			ends := int64(timeouts.zset[member])
			// In the last millisecond of its lease it is held while others keep the string there. Without a record it is nobody's.
			if record, ok := records.value(member); ok && (ends > now || ends == now && get(permitKey) != nil) {
				owner := member[:strings.LastIndexByte(member, '#')]
				p.parts = append(p.parts, stake{owner: owner, permit: true, fence: whole(strings.Trim(record, "#*")), expire: ends})
			}
		}
	}
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

// beside reports whether a lock may have both of these holders. How many permits there may be is another matter.
func (p stake) beside(o stake) bool {
	return p.permit == o.permit && p.shared == o.shared && (p.permit || p.shared || who(p.owner) == who(o.owner))
}

// first is the first of the parts, which of an exclusive lock is the only one.
func (p *picture) first() (part stake) {
	if len(p.parts) > 0 {
		part = p.parts[0]
	}
	return part
}

func (p *picture) equal(o *picture) bool {
	return p.exists == o.exists && p.shared == o.shared && p.expire == o.expire && slices.Equal(p.parts, o.parts)
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

// left judges that no lease is left without its holder.
func (r *rules) left(at *server, name string, after *picture) {
	if *r.upset.of(sharedKey) != -never || r.w.shape != single {
		return
	}
	for _, key := range at.timeouts() {
		owner, _, _ := strings.Cut(key[len(leases):], ":rwlock_timeout")
		if _, ok := after.part(owner); !ok || !after.shared {
			r.w.fail("the lease of a holder was left behind", "%s after %s", key, name)
		}
	}
}

// overtakes judges whom a shared grant beside others has overtaken.
func (r *rules) overtakes(at *server, args []string, part stake, before *picture, queue []string) {
	w := r.w
	if !part.shared || !before.shared || len(before.parts) == 0 {
		return
	}
	if own := len(args) > 6 && len(queue) > 0 && queue[0] == args[6]; len(queue) > 0 && !own && slices.Contains(at.queue(sharedKey), queue[0]) {
		w.fail("a waiter was overtaken by a shared newcomer", "%s: %s waits before %s", sharedKey, queue[0], part.owner)
	}
	if !w.calm {
		return
	}
	for _, waits := range w.clients {
		s := waits.current
		came := func(c *client) bool {
			return c.current != nil && ownerOf(c, c.current) == who(part.owner) && c.current.sent < s.sent
		}
		if s == nil || !wantsAlone(waits, s) || s.cmd.Owner != "" || slices.ContainsFunc(w.clients, came) {
			continue
		}
		isPlace := func(place string) bool {
			return who(place) == ownerOf(waits, s) || strings.HasPrefix(place, waits.p.uuid+":plain-")
		}
		if at := slices.IndexFunc(queue, isPlace); at >= 0 {
			k := passing{s, queue[at], part.owner}
			if r.passed[k]++; r.passed[k] > mostPassed {
				w.fail("an exclusive waiter was overtaken again and again", "%s: %s, by %s", waits, s.line, part.owner)
			}
		}
	}
}

// mostPassed is how often a waiter may be overtaken by the same newcomer: in a turn that had begun, and in the next
// one.
const mostPassed = 2

// wantsAlone reports whether a client waits to be the only holder of the lock that may be shared.
func wantsAlone(c *client, s *slot) bool {
	return !c.ended && s.cmd.Key == sharedKey && !s.cmd.Shared && acquires(s.cmd.Verb)
}

// ownerOf is for whom a command acquires.
func ownerOf(c *client, s *slot) string {
	if s.cmd.Owner != "" {
		return s.cmd.Owner
	}
	return c.owner()
}
