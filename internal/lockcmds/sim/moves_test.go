package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Servers change their parts: a replica becomes the primary, or a hash slot moves to another shard. One such change is
// under way at a time.

// shapes are those of histories, as often as they are here.
var shapes = [...]int{sentinels, sentinels, cluster, cluster, single, single, single, single}

// arrange has the servers of a history change their parts, if there are more than one.
func (p *plan) arrange(rng *rand.Rand) {
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	synced := slices.ContainsFunc(p.actions, func(a action) bool { return strings.Contains(a.line, " SYNC ") })
	if synced {
		p.replicas = 2
	}
	kinds := []string{"fail over", "fail over", "kill primary", "stop primary", "cut off", "promote"}
	switch p.shape {
	case single:
		return
	case cluster:
		p.strict = rng.IntN(2) == 0
		kinds = append(kinds, "reshard", "reshard", "reshard")
	}
	if one := rng.IntN(5) == 0; !synced && one {
		p.replicas = 1
	} else {
		p.replicas = 2
	}
	if p.calm { // else there are other faults as well
		if p.calm = false; rng.IntN(4) > 0 {
			p.smooth = true
			kinds = []string{"fail over"}
			if p.shape == cluster {
				kinds = append(kinds, "reshard", "reshard")
			}
		}
	}
	if rng.IntN(3) == 0 {
		p.lag = between(time.Millisecond, 300*time.Millisecond)
	}
	if p.smooth {
		p.lag /= 10
	}
	if !synced && rng.IntN(2) == 0 {
		p.synchronize(rng)
	}
	for i := range p.actions {
		if a := &p.actions[i]; a.kind == "step" { // a clock that goes back and a lost counter do not go together
			a.d = max(a.d, -a.d)
		}
	}
	if !p.smooth && rng.IntN(2) == 0 { // what is granted meanwhile is lost
		p.actions = append(p.actions, action{
			at: between(0, p.length), kind: "replicas away", d: between(time.Millisecond, time.Second),
		})
	}
	commands := len(p.actions)
	of := keys
	if p.permits {
		of = []string{permitKey}
	}
	most := 3
	if p.smooth {
		most = 8
	}
	for n := 1 + rng.IntN(most); n > 0; n-- {
		a := action{
			at: between(0, p.length), kind: kinds[rng.IntN(len(kinds))], who: rng.IntN(p.proxies), line: of[rng.IntN(len(of))],
			d: between(5*time.Millisecond, 100*time.Millisecond), d2: between(time.Millisecond, 2*time.Second),
		}
		if rng.IntN(2) == 0 { // while something is on its way
			near := p.actions[rng.IntN(commands)]
			for tries := 3; p.smooth && tries > 0 && !strings.HasPrefix(near.line, "UNLOCK"); tries-- { // the message to waiters may be missed
				near = p.actions[rng.IntN(commands)]
			}
			a.at, a.line = near.at+between(-3*time.Millisecond, 3*time.Millisecond), near.key(a.line)
		}
		switch rng.IntN(3) {
		case 0:
			a.d *= 15
		case 1:
			a.d /= 50
		}
		if a.kind == "reshard" { // for each key: a slot is moved before a lease has ended
			a.d = min(a.d, 500*time.Millisecond)
		}
		p.actions = append(p.actions, a)
	}
}

// key is the lock of a command; otherwise: of another action.
func (a action) key(otherwise string) string {
	if f := strings.Fields(a.line); a.kind == "send" && len(f) > 1 {
		return f[1]
	}
	return otherwise
}

// synchronize gives acquires replicas to wait for, which are away at times.
func (p *plan) synchronize(rng *rand.Rand) {
	for i := range p.actions {
		if a := &p.actions[i]; a.kind == "send" && strings.Contains(a.line, "LOCK ") && a.line[0] != 'U' && a.line[0] != 'E' && rng.IntN(3) > 0 {
			a.line += " SYNC " + strconv.Itoa(1+rng.IntN(max(p.replicas, 1)))
		}
	}
	if p.smooth {
		return
	}
	for range rng.IntN(3) {
		p.actions = append(p.actions, action{
			at: time.Duration(rng.Int64N(int64(p.length))), kind: "replicas away", d: time.Duration(rng.Int64N(int64(3 * time.Second))),
		})
	}
	if rng.IntN(2) == 0 {
		p.actions = append(p.actions, action{
			at: time.Duration(rng.Int64N(int64(p.length))), kind: [...]string{"cut wait", "stall wait"}[rng.IntN(2)], who: rng.IntN(p.proxies),
			d: time.Duration(rng.Int64N(int64(300 * time.Millisecond))), n: rng.IntN(3),
		})
	}
}

// build starts the servers of a history.
func (w *world) build(p *plan) {
	w.shape, w.strict, w.smooth, w.lag = p.shape, p.strict, p.smooth, p.lag
	shards := []*shard{w.newShard(p.replicas)}
	if p.shape != cluster {
		w.slots = []hashSlot{{shard: shards[0]}}
	} else {
		shards = append(shards, w.newShard(p.replicas))
		for i := range locks {
			w.slots = append(w.slots, hashSlot{shard: shards[(int(p.seed)+i)%2]})
		}
	}
	if p.shape != single {
		for _, s := range w.servers {
			s.ahead = time.Duration(w.chance.IntN(2*skew+1)-skew) * time.Millisecond
		}
	}
}

// skew is what the clock of a server is ahead or behind at most, in milliseconds.
const skew = 20

// move begins a change. It does nothing while there is another one.
func (w *world) move(a *action) {
	at := w.slotOf(a.line)
	sh := w.slots[at].shard
	old := sh.primary
	candidates := sh.candidates()
	if w.moving || a.kind != "reshard" && len(candidates) == 0 || a.kind == "reshard" && w.shape != cluster {
		return
	}
	w.moving = true
	switch a.kind {
	case "reshard":
		w.reshard(at, a.d)
	case "fail over":
		w.planned(sh)
	case "kill primary":
		old.die()
		w.in(a.d, nil, func() { w.takeOver(sh) })
		w.in(a.d+a.d2, nil, func() {
			old.up = true
			w.rejoin(old)
		})
	case "stop primary":
		old.halted = w.now + a.d + a.d2
		w.in(a.d, nil, func() { w.takeOver(sh) })
		w.in(a.d+a.d2+w.latency(), nil, func() { w.rejoin(old) })
	case "cut off":
		old.only = w.proxies[a.who%len(w.proxies)]
		old.only.blind = w.now + a.d + w.upTo(a.d2)
		if old.detach(); w.shape == cluster {
			old.barred = w.now + a.d + w.upTo(a.d)
		}
		w.in(a.d, nil, func() { w.takeOver(sh) })
		w.in(a.d+a.d2, nil, func() { w.rejoin(old) })
	case "promote": // as SENTINEL FAILOVER and CLUSTER FAILOVER TAKEOVER do: the old primary is not asked
		old.detach()
		w.takeOver(sh)
		w.in(a.d, nil, func() { w.rejoin(old) })
	}
}

// planned is a failover in agreement: the primary writes no more, and the replica has everything when it takes over.
func (w *world) planned(sh *shard) {
	old, to := sh.primary, sh.candidates()[0]
	at := max(to.latest, w.now) + w.latency()
	old.halted = at
	w.in(at-w.now, nil, func() {
		if to.latest > w.now { // an operator has written meanwhile
			w.planned(sh)
			return
		}
		sh.promote(to)
		w.spread()
		w.rejoin(old)
	})
}

// takeOver promotes a replica in place of a primary that is not there any more.
func (w *world) takeOver(sh *shard) {
	all := sh.candidates()
	to := all[0]
	if w.chance.IntN(4) == 0 {
		to = all[w.chance.IntN(len(all))]
	}
	sh.promote(to)
	w.spread()
}

// spread has the proxies learn of a change, each in its time.
func (w *world) spread() {
	for _, p := range w.proxies {
		d := 2*w.latency() + w.upTo(20*time.Millisecond)
		if w.chance.IntN(3) == 0 {
			d += w.upTo(500 * time.Millisecond)
		}
		w.settledAt = max(w.settledAt, w.now+d+10*time.Millisecond)
		w.in(max(d, p.blind-w.now), p, p.see)
	}
}

// rejoin makes a server that was the primary a replica of its successor, and ends the change.
func (w *world) rejoin(s *server) {
	w.note("      %s is a replica of %s", s, s.shard.primary)
	s.follow(s.shard.primary)
	w.rules.follows(s)
	if w.shape == cluster {
		for i := range w.slots {
			s.subs.end(i)
		}
	} else {
		for _, p := range w.proxies {
			s.subs.drop(p.link)
			for _, r := range p.roads() {
				r.to(s).cut(0, 0, 0)
			}
		}
	}
	w.moving = false
	all := s.kept
	s.kept = nil
	for _, f := range all {
		f()
	}
}

// die kills the process.
func (s *server) die() {
	s.detach()
	s.up = false
	s.subs = newSubscriptions(s)
	for _, p := range s.w.proxies {
		for _, r := range p.roads() {
			r.to(s).cut(0, 0, 0)
		}
	}
}

// detach cuts a primary off from its replicas.
func (s *server) detach() {
	for _, r := range s.shard.servers {
		if r.of == s {
			r.cutAt = s.w.now
		}
	}
}

// reshard moves a slot to the other shard, key by key.
func (w *world) reshard(at int, pause time.Duration) {
	slot := &w.slots[at]
	i := slices.IndexFunc(w.servers, func(s *server) bool { return s.shard != slot.shard })
	slot.to = w.servers[i].shard
	var next func()
	next = func() {
		from, to := slot.shard.primary, slot.to.primary
		var here []string
		for _, one := range slices.Clone(from.keys) { // get removes those that have expired
			if w.slotOf(one.key) == at && from.get(one.key) != nil {
				here = append(here, one.key)
			}
		}
		if len(here) > 0 {
			slices.Sort(here)
			w.migrate(from, to, here[w.chance.IntN(len(here))], locks[at])
			w.in(w.latency()+w.upTo(pause), nil, next)
			return
		}
		w.note("      the slot of %s is at %s", locks[at], to)
		w.migrateGrants(from, to, locks[at])
		w.rules.moved(locks[at])
		slot.shard, slot.to = slot.to, nil
		w.spread()
		from.subs.end(at)
		w.moving = false
	}
	w.in(w.latency(), nil, next)
}

// migrate moves one key.
func (w *world) migrate(from, to *server, key, lock string) {
	w.note("      %s goes from %s to %s", key, from, to)
	to.keys.put(key, from.keys.of(key).share())
	from.keys.remove(key)
	from.dirty, to.dirty = append(from.dirty, key), append(to.dirty, key)
	from.commit()
	w.migrateGrants(from, to, lock)
}

// migrateGrants has the new server of a slot know what the old one does of its lock.
func (w *world) migrateGrants(from, to *server, lock string) {
	for g := range from.grants {
		if g.key == lock {
			to.learn(g)
			to.begun = append(to.begun, g)
		}
	}
	to.commit()
}

// roads are all connections of a proxy.
func (p *proxy) roads() []*road { return []*road{p.lane, p.link.own, p.link.sub, p.link.wait} }

func (sh *shard) String() string { return fmt.Sprint(sh.primary) }
