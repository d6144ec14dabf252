package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// rules is what must be true after each step of a history.
type rules struct {
	w         *world
	running   bool                      // a script is
	written   [4]snapshot               // of keys, in the script in progress
	keys      []string                  // of locks that are hashes
	held      []string                  // of all locks that clients ask for
	ok        map[renewable]int64       // until when it may be renewed, as Redis's own clock says, in ms
	chains    byLock[chain]             // hand-overs in a row
	free      byLock[since]             // it does not exist
	open      since                     // the lock that may be shared is, and nobody wants it for itself
	shared    map[grant]bool            // it was made shared
	passed    map[passing]int           // in a calm history: how often an exclusive waiter was overtaken by the same newcomer
	dead      map[*belief]time.Duration // since when Redis does not have what a client counts on
	debts     []debt                    // losses that must be told soon
	upset     byLock[time.Duration]     // when somebody from outside took a lock away, or a clock jumped
	settled   time.Duration             //
	short     byLock[time.Duration]     // until when waiters may not know that its lease was made shorter
	grantedAt byLock[time.Duration]     // when Redis granted it last
	flushed   byLock[int64]             // the largest fence whose counter was flushed
	made      map[grant]time.Duration   // when the server that counts made it
	movedAt   byLock[time.Duration]     // when its hash slot got to another shard
	unknown   []debt                    // holds that the server which counts does not know
	lossy     byLock[bool]              // something was lost with a primary
	handled   map[grant]time.Duration   // when a client was told that it has ended the grant by its handle
	shorter   map[grant]bool            // its lease may be shorter than its client knows, because a renewal was lost
	takers    map[grant][]string        // the sessions that take part in a grant of an owner that several are
	lasting   map[named]lasting         // of those owners
	servers   map[grant]*server         // of such a grant: the only one that has carried out calls; nil: several have
	ended     map[named]int64           // the latest grant of such an owner that a release has ended
	ahead     map[named]int64           // releases of such an owner that were answered before the acquires of what they gave back
	torn      bool                      // a place may be left in a queue, and is reaped later: a copy came late, or one of the two keys was evicted
}

// byLock has one value for each lock.
type byLock[T any] [5]T

func (b *byLock[T]) of(key string) *T { return &b[place(key)] }

// place is that of a lock in keys.
func place(key string) int {
	switch key {
	case "a":
		return 0
	case "b":
		return 1
	case "f":
		return 2
	case permitKey:
		return 3
	case sharedKey:
		return 4
	}
	panic(key)
}

// queues are the keys of the queues of the locks.
var queues = [...]string{"redisson_lock_queue:{a}", "redisson_lock_queue:{b}", "redisson_lock_queue:{f}", permitQueue, "redisson_lock_queue:{s}"}

// queueOf is the key of the queue of a lock.
func queueOf(key string) string { return queues[place(key)] }

// snapshot is a lock and its queue before a script wrote any of them.
type snapshot struct {
	taken bool
	was   picture
	queue []string
}

// renewable is a grant that a proxy renews.
type renewable struct {
	p *proxy
	grant
}

type chain struct {
	n     int
	since time.Duration
	p     *proxy
}

// debt is a client that counts on a lock that Redis has given to another.
type debt struct {
	c     *client
	key   string
	fence int64
	due   time.Duration
	other int64 // fence of the other grant
}

func newRules(w *world, keys []string) *rules {
	return &rules{
		w: w, keys: keys, held: keys, ok: map[renewable]int64{}, upset: byLock[time.Duration]{-never, -never, -never, -never, -never},
		shared: map[grant]bool{}, passed: map[passing]int{}, dead: map[*belief]time.Duration{},
		made: map[grant]time.Duration{}, handled: map[grant]time.Duration{}, shorter: map[grant]bool{}, takers: map[grant][]string{}, servers: map[grant]*server{}, lasting: map[named]lasting{},
		ended: map[named]int64{}, ahead: map[named]int64{},
	}
}

// find is the server that has a lock, of those that count.
func (r *rules) find(key string) *server {
	slot := r.w.slots[r.w.slotOf(key)]
	if slot.to != nil && slot.shard.primary.get(key) == nil && slot.to.primary.get(key) != nil {
		return slot.to.primary
	}
	return slot.shard.primary
}

// get is a key of a lock, of either server while it may be on two.
func (r *rules) get(key string) *entry {
	slot := r.w.slots[r.w.slotOf(key)]
	if e := slot.shard.primary.get(key); e != nil || slot.to == nil {
		return e
	}
	return slot.to.primary.get(key)
}

// whole is the number that a text says; 0: none.
func whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func (r *rules) queue(key string) []string { return r.find(key).queue(key) }

func (s *server) queue(key string) []string {
	if e := s.get(queueOf(key)); e != nil {
		return e.list
	}
	return nil
}

// scripts runs the scripts of all histories.
var scripts = newInterpreter()

// eval executes a script for a proxy, and checks what it has done.
func (w *world) eval(at *server, p *proxy, s redislink.Script, keys, args []string) resp.Value {
	r := w.rules
	for _, key := range r.keys { // the end of a lease is no work of the script
		if at.get(key); key == sharedKey {
			at.expireAll(leases)
		}
	}
	if w.permits != nil {
		w.permits.begin(at)
	}
	name := s.(interface{ Name() string }).Name()
	r.running = true
	v := scripts.run(at.redis, s, keys, args)
	r.running = false
	if w.keep {
		w.calls = append(w.calls, call{s, keys, args, v})
		w.note("      %s %s %s %s %q = %s", at, p, name, strings.Join(keys[:min(1, len(keys))], " "), args, show(v))
	}
	for i, key := range r.keys {
		was := &r.written[i]
		if !was.taken && key != keys[0] {
			continue
		}
		after := at.picture(key)
		changed := was.taken && !was.was.equal(&after)
		if was.taken {
			was.taken = false
			r.executed(at, p, name, args, key, &was.was, &after, was.queue)
		}
		if _, ok := fieldAt[name]; name == "renew" || !changed && (!ok && name != "deepen" || name == "drop") {
			continue
		}
		for _, part := range after.parts { // the answer confirms the lease to its owner, also that to a copy
			if part.owner == args[0] || changed && slices.Contains(args, part.owner) {
				r.mayRenew(at, p, grant{key, part.fence}, part.expire)
			}
		}
	}
	if w.permits != nil {
		w.permits.ran(at, p, name, args)
	}
	if len(at.dirty) > 0 && !r.counting(at) {
		r.torn = true // what a waiter does to the queue is lost, too
	}
	at.commit()
	return v
}

// writes is told of a key that a server is about to write.
func (r *rules) writes(at *server, key string) {
	if !r.running {
		return
	}
	for i, lock := range r.keys {
		if was := &r.written[i]; !was.taken && (key == lock || key == queueOf(lock) || lock == sharedKey && strings.HasPrefix(key, leases)) {
			*was = snapshot{true, at.picture(lock), at.queue(lock)}
		}
	}
}

// mayRenew notes until when a proxy may renew a lease.
func (r *rules) mayRenew(at *server, p *proxy, g grant, expire int64) {
	id := renewable{p, g}
	r.ok[id] = max(r.ok[id], expire-at.ahead.Milliseconds())
}

// executed judges what one script has done to one lock.
func (r *rules) executed(at *server, p *proxy, name string, args []string, key string, before, after *picture, queue []string) {
	w := r.w
	same := before.equal(after)
	if name == "force" && !same {
		r.disturb(key)
	}
	switch {
	case after.strange != "":
		w.fail("a hash that Redisson must not meet", "%s after %s: %s", key, name, after.strange)
	case after.exists && after.expire == 0:
		w.fail("a lock without TTL", "%s after %s", key, name)
	}
	for _, part := range after.parts {
		switch {
		case part.leaseMisses:
			w.fail("a lock without TTL", "%s of %s after %s", key, part.owner, name)
		case part.expire > after.expire:
			w.fail("a lock ends before the lease of a holder", "%s of %s after %s: %d ms", key, part.owner, name, part.expire-after.expire)
		}
	}
	if key == sharedKey {
		r.left(at, name, after)
	}
	mine, _ := before.part(args[0])
	now, _ := after.part(args[0])
	if name == "drop" && mine != now && args[1] != "0" && args[1] != strconv.FormatInt(mine.fence, 10) {
		w.fail("a rollback of another grant", "%s of %s: fence %d, not %s", key, args[0], mine.fence, args[1])
	}
	if _, ok := fieldAt[name]; ok && !same && !owned(args[0]) && r.authority(at, key) {
		r.lasts(at, name, args, key, now.fence, now.expire)
	}
	for _, part := range before.parts {
		r.stays(name, args, key, part, after)
		if name == "drop" {
			r.kept(at, p, key, part, after)
		}
	}
	r.named(at, name, args, key, mine.named(), now.named())
	counts := r.authority(at, key)
	for _, part := range after.parts {
		if was, _ := before.part(part.owner); was.fence != part.fence {
			r.granted(at, name, args, key, part, before, queue)
			if counts {
				*r.grantedAt.of(key), r.made[grant{key, part.fence}] = w.now, w.now
			}
		}
	}
	if !counts {
		if w.shape != single {
			r.torn = true
		}
		if !same {
			*r.lossy.of(key) = true
		}
		r.doomed(key, before, after)
		return
	}
	for _, part := range after.parts {
		if was, held := before.part(part.owner); !held || was.fence != part.fence {
			r.owed(key, part)
		}
	}
	r.chain(p, key, before, after)
	for _, was := range before.parts {
		part, ok := after.part(was.owner)
		if ok && part.expire < was.expire {
			*r.short.of(key) = w.now + lease // waiters look at the lock once per lease, because nobody tells them that
		} else if ok && name == "renew" && part.expire > was.expire {
			delete(r.shorter, grant{key, part.fence})
		}
	}
}

// stays judges that a script takes nothing from other owners, and that a hold keeps its mode.
func (r *rules) stays(name string, args []string, key string, part stake, after *picture) {
	now, ok := after.part(part.owner)
	if ok && now.fence == part.fence && now.shared != part.shared {
		r.w.fail("a hold changed its mode", "%s of %s by %s", key, part.owner, name)
	}
	switch {
	case name == "force", slices.Contains(args, part.owner):
	case !ok:
		r.w.fail("a lock was taken away", "%s from %s by %s", key, part.owner, name)
	case now.fence != part.fence || now.holds != part.holds:
		r.w.fail("holds were changed by another", "%s of %s by %s", key, part.owner, name)
	case now.expire < part.expire:
		r.w.fail("a lease was cut short by another", "%s of %s by %s: %d ms", key, part.owner, name, part.expire-now.expire)
	}
}

// begins judges the fence of a grant, and notes that a server has made it.
func (r *rules) begins(at *server, g grant) {
	if last := *at.fences.of(g.key); r.back(g.key, last, g.fence) || g.fence < at.micros() {
		r.w.fail("a fence went back", "%s: %d after %d, at %d", g.key, g.fence, last, at.micros())
	}
	at.learn(g)
	at.begun = append(at.begun, g)
}

// granted judges a grant: its fence, who else holds the lock, and who was first.
func (r *rules) granted(at *server, name string, args []string, key string, part stake, before *picture, queue []string) {
	g := grant{key, part.fence}
	r.begins(at, g)
	if part.shared {
		r.shared[g] = true
	}
	if !owned(part.owner) {
		r.takers[g], r.servers[g] = []string{sessionOf(part.by)}, at
	}
	for _, other := range before.parts {
		switch {
		case other.owner == part.owner:
			if other.shared != part.shared {
				r.w.fail("a holder got the lock in the other mode, too", "%s: %s by %s", key, part.owner, name)
			}
			return // it goes ahead, or replaces what is left of a grant that was not used
		case (!other.shared || !part.shared) && !slices.Contains(args, other.owner) && name != "force":
			r.w.fail("an exclusive holder beside another", "%s: %s by %s, beside %s", key, part.owner, name, other.owner)
		}
	}
	if key == sharedKey {
		r.overtakes(at, args, part, before, queue)
	} else {
		r.overtaken(at, key, part.owner, queue)
	}
}

// overtaken judges the order of fair waiters: who was granted the lock must have been the first of those who still
// wait and listen.
func (r *rules) overtaken(at *server, key, owner string, queue []string) {
	if !strings.HasPrefix(key, "f") {
		return
	}
	left := at.queue(key)
	for _, place := range queue {
		if place == who(owner) {
			return
		}
		if slices.Contains(left, place) && at.subs.listens(script.NameChannel(key, place)) {
			r.w.fail("a fair waiter was overtaken", "%s: %s waits before %s", key, place, owner)
		}
	}
}

// owed notes who counts on the lock beside a holder that Redis has granted it to.
func (r *rules) owed(key string, to stake) {
	for _, c := range r.w.clients {
		for _, b := range c.beliefs(key) {
			if b == nil || b.released || c.ended || c.p.killed || b.fence >= to.fence || c.owner() == who(to.owner) {
				continue
			}
			g := grant{key, b.fence}
			if r.shared[g] && to.shared || !r.known(g) || r.shorter[g] || *r.upset.of(key) >= r.made[g] { // the lease may have ended early
				continue
			}
			r.debts = append(r.debts, debt{c, key, b.fence, r.w.now + debtLimit, to.fence})
		}
	}
}

func (r *rules) chain(p *proxy, key string, was, is *picture) {
	if key == sharedKey {
		return
	}
	before, after := was.first(), is.first()
	c := *r.chains.of(key)
	switch {
	case before.owner == after.owner && before.fence == after.fence:
		return
	case before.owner == "" || after.owner == "", before.owner == after.owner: // it was free, or its owner has acquired it anew
		c = chain{p: p}
	default:
		if c.p != p || !owned(before.owner) { // such an owner may have got the lock elsewhere
			c = chain{p: p}
		}
		if c.n++; c.n == 1 {
			c.since = r.w.now
		}
	}
	*r.chains.of(key) = c
	if c.n > table.MaxHandOvers || r.w.calm && c.n > 1 && r.w.now-c.since > table.MaxStreak+100*time.Millisecond {
		r.w.fail("too many hand-overs in a row", "%s: %d in %v", key, c.n, r.w.now-c.since)
	}
}

// sent judges a script that an engine sends by itself.
func (r *rules) sent(p *proxy, name string, keys, args []string) {
	for _, one := range renewed(name, keys, args) {
		if one.lease == 1 { // a question whether the grant is there: it makes no lease longer
			continue
		}
		if until, known := r.ok[renewable{p, one.grant}]; known && r.w.ms() > until+1 && r.w.stepped == 0 {
			r.w.fail("renewed after the deadline", "%v, %d ms after it", one, r.w.ms()-until)
		}
		if ended, ok := r.handled[one.grant]; ok && r.w.shape == single && r.w.stepped == 0 && r.w.now > ended+lease {
			r.w.fail("renewed long after the end by the handle", "%v", one)
		}
		for _, c := range r.w.all {
			if c.owner() != who(one.owner) {
				continue
			}
			if c.ended {
				r.w.fail("renewed after the end", "%v", one)
			}
			if _, over := c.over[one.grant]; over {
				r.w.fail("renewed after a release or a loss", "%v", one)
			}
		}
	}
}

// answered learns from the answer to a script that an engine has sent by itself.
func (r *rules) answered(p *proxy, name string, keys, args []string, sent time.Duration, v resp.Value) {
	all := renewed(name, keys, args)
	if len(v.Elems) != len(all) {
		return
	}
	for i, one := range all {
		if v.Elems[i].Int == 0 {
			continue
		}
		id := renewable{p, one.grant}
		r.ok[id] = max(r.ok[id], (epoch.UnixMicro()+sent.Microseconds())/1000+one.lease+1)
	}
}

// disturb notes that a lock was taken away from outside, or a clock has jumped.
func (r *rules) disturb(keys ...string) {
	for _, key := range keys {
		*r.upset.of(key) = r.w.now
	}
}

// debtLimit is the time in which a client learns that another one has the lock, from the moment at which it could.
const debtLimit = 100 * time.Millisecond

// endedLimit is the time in which a client learns that Redis does not have what it counts on. A promoted server whose
// clock is ahead ends a lease sooner than the client's own clock does, and the loss is told a moment later.
const endedLimit = debtLimit + 2*skew*time.Millisecond

// collect judges the debts that are due.
func (r *rules) collect() {
	w := r.w
	left := r.debts[:0]
	for _, d := range r.debts {
		c, b := d.c, d.c.belief(d.key, d.fence)
		if b == nil || b.released || c.ended || c.p.killed {
			continue
		}
		if !r.known(grant{d.key, d.other}) { // a failover has lost it, and the client may have the lock again
			continue
		}
		if c.asks(d.key) {
			// It may have asked for a shorter lease itself: LOCK … MAXHOLD 1263 SYNC 1 of the holder shortens the lease, a
			// failover passes, the lease ends, another gets the lock, NOTSYNCED. The next renewal finds the loss.
			d.due = w.now + debtLimit + tellTime
		}
		d.due = max(d.due, c.p.pausedUntil+debtLimit)
		if d.due <= w.now {
			w.fail("two clients count on one lock", "%s of %s, fence %d; redis has %d", d.key, c, d.fence, d.other)
		}
		left = append(left, d)
	}
	r.debts = left
}

// check is run after each step.
func (r *rules) check() {
	w := r.w
	if len(r.debts) > 0 {
		r.collect()
	}
	if len(r.unknown) > 0 {
		r.learned()
	}
	r.promised()
	for _, p := range w.proxies {
		if n := p.waiting.Load(); n < 0 {
			w.fail("a waiter was removed twice", "%s counts %d", p, n)
		}
	}
	if w.calm && len(w.all) > len(w.clients) {
		r.unused()
	}
	if w.calm || w.smooth || w.quiet {
		r.progress()
	}
	if w.steps%4 == 0 {
		r.alive()
	}
	if w.permits != nil {
		w.permits.check()
	}
}

// alive judges that Redis has what clients count on.
func (r *rules) alive() {
	for _, c := range r.w.clients {
		for _, key := range r.held {
			for _, b := range c.beliefs(key) {
				if b == nil {
					continue
				}
				g := grant{key, b.fence}
				_, ended := r.handled[g]
				lost := key == permitKey && r.w.permits.forgotten[b.fence]
				r.misses(c, g, b, ended || lost || r.w.moving || c.asks(key) || *r.upset.of(key) >= r.made[g] || *r.lossy.of(key) || r.has(g))
			}
		}
	}
}

// misses judges for how long Redis has not had what a client counts on. well: it has, or that is excused.
func (r *rules) misses(c *client, g grant, b *belief, well bool) {
	if well || c.ended || c.p.killed || b.vague || b.releasing || b.released || r.shorter[g] || !r.known(g) {
		delete(r.dead, b)
		return
	}
	from, ok := r.dead[b]
	if !ok {
		from = r.w.now
	}
	if r.dead[b] = max(from, c.p.pausedUntil); r.w.now-r.dead[b] > endedLimit {
		r.w.fail("a client counts on a lease that has ended", "%s of %s, fence %d, for %v", g.key, c, b.fence, r.w.now-r.dead[b])
	}
}

// goneLimit is how long a lock may stay with a session that had ended when it was granted, while nothing is broken. Its
// lease is longer.
const goneLimit = 500 * time.Millisecond

// unused judges that a grant of which its session was not told, because it has ended, goes back at once.
func (r *rules) unused() {
	for _, key := range r.held {
		if r.w.now-*r.grantedAt.of(key) < goneLimit {
			continue
		}
		for _, part := range r.picture(key).parts {
			for _, c := range r.w.all {
				if c.ended && c.owner() == who(part.owner) && r.w.now-c.endedAt > goneLimit && !c.wasTold(key, part.fence) {
					r.w.fail("a grant to a session that has ended was kept", "%s of %s, fence %d", key, c, part.fence)
				}
			}
		}
	}
}

// idleLimit is how long a lock may be free while somebody waits for it and nothing is broken.
const idleLimit = 2 * time.Second

func (r *rules) progress() {
	w := r.w
	for i, key := range r.keys {
		if key == sharedKey && w.steps%4 != 0 { // its limits are long
			continue
		}
		free := &r.free[i]
		if free.note(r.find(key).get(key) == nil, w.now); key == sharedKey {
			now := r.find(key).picture(key)
			wanted := slices.ContainsFunc(w.clients, func(c *client) bool { return c.current != nil && wantsAlone(c, c.current) })
			r.open.note(now.shared && len(now.parts) > 0 && !wanted, w.now)
		}
		if !free.is && (key != sharedKey || !r.open.is) {
			continue
		}
		for _, c := range w.clients {
			s := c.current
			if s == nil || c.ended || s.cmd.Key != key || !acquires(s.cmd.Verb) {
				continue
			}
			from := free.at
			if !free.is {
				if from = r.open.at; !s.cmd.Shared {
					continue
				}
			}
			last := max(from, s.sent, r.settled, *r.short.of(key), w.settledAt)
			if w.now-last > idleLimit && (w.calm || w.smooth && !w.moving) {
				w.fail("a waiter was forgotten", "%s: %s, could have had the lock for %v", c, s.line, w.now-last)
			}
		}
	}
}

func acquires(v grammar.Verb) bool {
	return v == grammar.Lock || v == grammar.TryLock || v == grammar.FairLock
}

// agree judges whether clients, engines and Redis tell the same, at a moment when nothing is on its way. Empty: they
// do.
func (r *rules) agree() string {
	w := r.w
	for _, key := range r.held {
		now, lossy, known := r.picture(key), *r.lossy.of(key), map[int64]bool{}
		for _, c := range w.clients {
			for _, b := range c.beliefs(key) {
				if b == nil || c.ended || b.vague {
					continue
				}
				counts := func(part stake) bool {
					return part.fence == b.fence && who(part.owner) == c.owner() && (part.holds == b.count || lossy || key == permitKey)
				}
				if !slices.ContainsFunc(now.parts, counts) {
					return fmt.Sprintf("%s: %s knows %d holds with fence %d, redis has %+v", key, c, b.count, b.fence, now.parts)
				}
			}
		}
		for _, p := range w.proxies {
			for _, l := range p.engine.List(0) {
				if l.Key != key {
					continue
				}
				known[l.Fence] = true
				is := func(part stake) bool {
					return part.fence == l.Fence && (part.permit || part.owner == l.Owner && (part.holds == l.Holds || lossy))
				}
				if owned(l.Owner) && !r.blurred(key, l.Owner) && !slices.ContainsFunc(now.parts, is) {
					return fmt.Sprintf("%s: %s knows %d holds of %s with fence %d, redis has %+v", key, p, l.Holds, l.Owner, l.Fence, now.parts)
				}
			}
		}
		if now.exists && len(known) == 0 {
			return fmt.Sprintf("%s: redis has %+v, and no engine knows", key, now.parts)
		}
		for _, part := range now.parts {
			if !known[part.fence] && owned(part.owner) && !lossy {
				return fmt.Sprintf("%s: redis has %+v, and no engine knows", key, part)
			}
		}
	}
	if w.calm {
		return r.few()
	}
	return ""
}

// blurred reports whether the client that is that owner was told that nobody knows what it holds.
func (r *rules) blurred(key, owner string) bool {
	return slices.ContainsFunc(r.w.all, func(c *client) bool { return c.owner() == who(owner) && *c.blurred.of(key) })
}

// gone judges whether nothing is left when all clients have gone.
func (r *rules) gone() {
	w := r.w
	for _, p := range w.proxies {
		if !p.engine.Idle() {
			w.fail("an engine is not idle", "%s", p)
		}
		if n := p.waiting.Load(); n != 0 {
			w.fail("waiters are counted that are not there", "%s counts %d", p, n)
		}
		if len(p.link.wanted) > 1 { // the channel of ends by force is kept
			w.fail("a subscription was left behind", "%s: %q", p, p.link.wanted)
		}
	}
	for _, key := range []string{permitTimeouts, permitRecords} {
		if r.get(key) != nil {
			w.fail("a lock was left behind", "%s", key)
		}
	}
	for _, key := range locks {
		if r.find(key).get(key) != nil {
			w.fail("a lock was left behind", "%s of %+v", key, r.picture(key).parts)
		}
		if key == sharedKey && len(r.find(key).timeouts()) > 0 {
			w.fail("the lease of a holder was left behind", "%s: %q", key, r.find(key).timeouts())
		}
		if r.torn {
			continue
		}
		for _, place := range r.queue(key) {
			for _, p := range w.proxies {
				if strings.HasPrefix(place, p.uuid) {
					w.fail("a place was left behind", "%s in the queue of %s", place, key)
				}
			}
		}
	}
}
