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
	w       *world
	running bool                    // a script is
	written [3]snapshot             // of keys, in the script in progress
	keys    []string                // of locks
	ok      map[renewable]int64     // until when it may be renewed, as Redis's own clock says, in ms
	chains  byLock[chain]           // hand-overs in a row
	free    byLock[freedom]         //
	debts   []debt                  // losses that must be told soon
	upset   byLock[time.Duration]   // when somebody from outside took a lock away, or a clock jumped
	settled time.Duration           //
	short   byLock[time.Duration]   // until when waiters may not know that its lease was made shorter
	granted byLock[time.Duration]   // when Redis granted it last
	flushed byLock[int64]           // the largest fence whose counter was flushed
	made    map[grant]time.Duration // when the server that counts made it
	movedAt byLock[time.Duration]   // when its hash slot got to another shard
	unknown []debt                  // holds that the server which counts does not know
	lossy   byLock[bool]            // something was lost with a primary
	handled map[grant]time.Duration // when a client was told that it has ended the grant by its handle
	shorter map[grant]bool          // its lease may be shorter than its client knows, because a renewal was lost
	takers  map[grant][]string      // the sessions that take part in a grant of an owner that several are
	lasting map[named]lasting       // of those owners
	servers map[grant]*server       // of such a grant: the only one that has carried out calls; nil: several have
	ended   map[named]int64         // the latest grant of such an owner that a release has ended
	ahead   map[named]int64         // releases of such an owner that were answered before the acquires of what they gave back
	torn    bool                    // a place may be left in a queue, and is reaped later: a copy came late, or one of the two keys was evicted
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
	taken  bool
	lock   holder
	places []string
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

type freedom struct {
	free  bool
	since time.Duration
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
		w: w, keys: keys, ok: map[renewable]int64{}, upset: byLock[time.Duration]{-never, -never, -never, -never, -never},
		made: map[grant]time.Duration{}, handled: map[grant]time.Duration{}, shorter: map[grant]bool{}, takers: map[grant][]string{}, servers: map[grant]*server{}, lasting: map[named]lasting{},
		ended: map[named]int64{}, ahead: map[named]int64{},
	}
}

// holder is what Redis has of a lock.
type holder struct {
	owner        string
	holds, fence int64
	owners       int
	by           string // {by}, of another owner
	expire       int64
	exists       bool
}

// isOwner reports whether a field of a lock's hash is its owner's; see script/lib/lock.lua.
func isOwner(field string) bool {
	return field != "fence" && field != "mode" && !strings.HasPrefix(field, "{")
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

func (r *rules) holder(key string) holder { return r.find(key).holder(key) }

func (s *server) holder(key string) (h holder) {
	e := s.get(key)
	if e == nil || e.kind != 'h' {
		return h
	}
	h.exists, h.expire = true, e.expire
	for i := 0; i < len(e.hash); i += 2 {
		switch field, text := e.hash[i], e.hash[i+1]; {
		case field == "fence":
			h.fence = whole(text)
		case field == "{by}":
			h.by = text
		case isOwner(field):
			h.owner, h.holds = field, whole(text)
			h.owners++
		}
	}
	return h
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
	for _, key := range r.keys {
		at.get(key) // the end of a lease is no work of the script
	}
	if w.sharing != nil {
		w.sharing.begin(at)
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
		switch was := &r.written[i]; {
		case was.taken:
			was.taken = false
			r.executed(at, p, name, args, key, was.lock, at.holder(key), was.places)
		case key == keys[0]:
			r.changedNothing(at, p, name, args, key, at.holder(key))
		}
	}
	if w.sharing != nil {
		w.sharing.ran(at, p, name, keys, args)
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
		if was := &r.written[i]; !was.taken && (key == lock || key == queues[i]) {
			*was = snapshot{true, at.holder(lock), at.queue(lock)}
		}
	}
	if r.w.sharing != nil {
		r.w.sharing.writes(at, key)
	}
}

// executed judges what one script has done to one lock.
func (r *rules) executed(at *server, p *proxy, name string, args []string, key string, before, after holder, queue []string) {
	w := r.w
	r.named(at, name, args, key, before.namedOf(args[0]), after.namedOf(args[0]))
	if before == after {
		r.changedNothing(at, p, name, args, key, after)
		return
	}
	if name == "force" {
		r.disturb(key)
	}
	if after.owners > 1 {
		w.fail("two holders", "%s: %d owners", key, after.owners)
	}
	if after.exists && after.expire == 0 {
		w.fail("a lock without TTL", "%s after %s", key, name)
	}
	if before.owner != "" && name != "force" && !slices.Contains(args, before.owner) {
		switch {
		case after.owner != before.owner:
			w.fail("a lock was taken away", "%s from %s by %s", key, before.owner, name)
		case after.holds != before.holds:
			w.fail("holds were changed by another", "%s of %s by %s", key, before.owner, name)
		}
	}
	if name == "drop" && args[1] != "0" && args[1] != strconv.FormatInt(before.fence, 10) {
		w.fail("a rollback of another grant", "%s of %s: fence %d, not %s", key, before.owner, before.fence, args[1])
	}
	if _, ok := fieldAt[name]; ok && key != sharedKey && !owned(args[0]) && r.authority(at, key) {
		fence := after.fence
		if after.owner != args[0] {
			fence = 0
		}
		r.lasts(at, name, args, key, fence, after.expire)
	}
	r.kept(at, p, name, key, before, after)
	granted := after.owner != "" && after.fence != before.fence
	if g := (grant{key, after.fence}); granted && !owned(after.owner) {
		r.takers[g], r.servers[g] = []string{sessionOf(after.by)}, at
	}
	if granted {
		if r.back(key, *at.fences.of(key), after.fence) || after.fence < at.micros() {
			w.fail("a fence went back", "%s: %d after %d, at %d", key, after.fence, *at.fences.of(key), at.micros())
		}
		at.learn(grant{key, after.fence})
		at.begun = append(at.begun, grant{key, after.fence})
		if after.owner != before.owner { // else it replaces what is left of a grant that was not used
			r.overtaken(at, key, after.owner, queue)
		}
	}
	if name != "renew" && after.owner != "" {
		r.confirmed(at, p, key, after)
	}
	if !r.authority(at, key) {
		r.doomed(key, before, after)
		return
	}
	if granted {
		*r.granted.of(key), r.made[grant{key, after.fence}] = w.now, w.now
		r.counted(key, after)
	}
	r.chain(p, key, before, after)
	if after.owner == before.owner && after.expire < before.expire {
		*r.short.of(key) = w.now + lease // waiters look at the lock once per lease, because nobody tells them that
	}
	if name == "renew" && after.expire > before.expire {
		delete(r.shorter, grant{key, after.fence})
	}
}

// changedNothing is for a script that has written nothing: the answer to a copy confirms the lease to its owner.
func (r *rules) changedNothing(at *server, p *proxy, name string, args []string, key string, h holder) {
	if _, ok := fieldAt[name]; (ok || name == "deepen") && name != "drop" && h.owner != "" && args[0] == h.owner {
		r.confirmed(at, p, key, h)
	}
}

// confirmed notes until when the proxy may renew a lease.
func (r *rules) confirmed(at *server, p *proxy, key string, h holder) {
	id := renewable{p, grant{key, h.fence}}
	r.ok[id] = max(r.ok[id], h.expire-at.ahead.Milliseconds())
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
		if slices.Contains(left, place) && at.subs.listens(script.Of(key).NameChannel(place)) {
			r.w.fail("a fair waiter was overtaken", "%s: %s waits before %s", key, place, owner)
		}
	}
}

// counted notes who counts on the lock though it is somebody else's now.
func (r *rules) counted(key string, now holder) {
	for _, c := range r.w.clients {
		b := *c.holds.of(key)
		if b == nil || b.released || c.ended || c.p.killed || b.fence >= now.fence || c.owner() == who(now.owner) {
			continue
		}
		if g := (grant{key, b.fence}); !r.known(g) || r.shorter[g] {
			continue
		}
		if *r.upset.of(key) >= r.made[grant{key, b.fence}] { // the lease may have ended early
			continue
		}
		r.debts = append(r.debts, debt{c, key, b.fence, r.w.now + debtLimit, now.fence})
	}
}

func (r *rules) chain(p *proxy, key string, before, after holder) {
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
	if w.sharing != nil {
		w.sharing.check()
	}
	if w.permits != nil {
		w.permits.check()
	}
}

// goneLimit is how long a lock may stay with a session that had ended when it was granted, while nothing is broken. Its
// lease is longer.
const goneLimit = 500 * time.Millisecond

// unused judges that a grant of which its session was not told, because it has ended, goes back at once.
func (r *rules) unused() {
	for _, key := range r.keys {
		if r.w.now-*r.granted.of(key) < goneLimit {
			continue
		}
		h := r.holder(key)
		for _, c := range r.w.all {
			if h.exists && c.ended && c.owner() == who(h.owner) && r.w.now-c.endedAt > goneLimit && !c.wasTold(key, h.fence) {
				r.w.fail("a grant to a session that has ended was kept", "%s of %s, fence %d", key, c, h.fence)
			}
		}
	}
}

// idleLimit is how long a lock may be free while somebody waits for it and nothing is broken.
const idleLimit = 2 * time.Second

func (r *rules) progress() {
	w := r.w
	for i, key := range r.keys {
		f := &r.free[i]
		free := r.find(key).get(key) == nil
		if free != f.free {
			*f = freedom{free, w.now}
		}
		if !free {
			continue
		}
		for _, c := range w.clients {
			s := c.current
			if s == nil || c.ended || s.cmd.Key != key || !acquires(s.cmd.Verb) {
				continue
			}
			since := max(f.since, s.sent, r.settled, *r.short.of(key), w.settledAt)
			if w.now-since > idleLimit && (w.calm || w.smooth && !w.moving) {
				w.fail("a waiter was forgotten", "%s: %s, free for %v", c, s.line, w.now-since)
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
	for _, key := range r.keys {
		h := r.holder(key)
		believers := 0
		for _, c := range w.clients {
			b := *c.holds.of(key)
			if b == nil || c.ended || b.vague {
				continue
			}
			believers++
			if who(h.owner) != c.owner() || h.fence != b.fence || h.holds != b.count && !*r.lossy.of(key) {
				return fmt.Sprintf("%s: %s knows %d holds with fence %d, redis has %d of %s with fence %d", key, c, b.count, b.fence, h.holds, h.owner, h.fence)
			}
		}
		held := 0
		for _, p := range w.proxies {
			for _, l := range p.engine.List(0) {
				if l.Key != key {
					continue
				}
				held++
				if owned(l.Owner) && !r.blurred(key, l.Owner) && (l.Owner != h.owner || l.Fence != h.fence || l.Holds != h.holds && !*r.lossy.of(key)) {
					return fmt.Sprintf("%s: %s knows %d holds of %s with fence %d, redis has %d of %s with fence %d", key, p, l.Holds, l.Owner, l.Fence, h.holds, h.owner, h.fence)
				}
			}
		}
		switch {
		case h.exists && held == 0:
			return fmt.Sprintf("%s: redis has %d holds of %s, and no engine knows", key, h.holds, h.owner)
		case believers > 1:
			return fmt.Sprintf("%s: %d clients count on it", key, believers)
		}
	}
	switch {
	case w.calm && r.few() != "":
		return r.few()
	case w.sharing != nil:
		return w.sharing.agree()
	case w.permits != nil:
		return w.permits.agree()
	default:
		return ""
	}
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
	if w.permits != nil {
		w.permits.gone()
	}
	for _, key := range locks {
		if r.find(key).get(key) != nil {
			w.fail("a lock was left behind", "%s of %s", key, r.holder(key).owner)
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
