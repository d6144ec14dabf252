package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

// plan is what a seed decides in advance: who there is, and what comes to them from outside. It can be made smaller
// while the history still breaks its rule.
type plan struct {
	seed     uint64
	proxies  int
	clients  int
	calm     bool
	length   time.Duration
	shape    int           // how the servers are arranged
	replicas int           // of each primary
	lag      time.Duration // what they are behind at most, beside the way
	strict   bool          // as in world
	smooth   bool          // as in world
	slowSub  time.Duration // what subscribing takes longer, at most; a release may come meanwhile
	slowOwn  time.Duration // what an answer on an engine's own connection takes longer, at most
	repeats  time.Duration // by how much a message is late that comes a second time, at most; 0: each comes once
	permits  bool          // all commands are about the lock of permits
	actions  []action
}

// action is one command or one fault.
type action struct {
	at    time.Duration
	kind  string // "send" or a fault
	who   int    // slot of a client, or number of a proxy
	line  string // of send; the key of some faults
	d, d2 time.Duration
	n     int
}

func (a action) String() string {
	if a.kind == "send" {
		return fmt.Sprintf("%10s  client %d: %s", a.at, a.who, a.line)
	}
	return fmt.Sprintf("%10s  %s %d %s %v %v %d", a.at, a.kind, a.who, a.line, a.d, a.d2, a.n)
}

// keys are the locks that one owner holds at a time, and locks are all.
var (
	keys          = []string{"a", "b", "f"}
	locks         = append(slices.Clone(keys), permitKey, sharedKey)
	locksOfHashes = append(slices.Clone(keys), sharedKey) // when one of them may be shared
)

// extent is how much happens in a history.
type extent struct {
	least, spread int           // of acquires
	length        time.Duration // in which they begin, at most
	held          time.Duration // until some of the locks are released, at most
}

// A lock must be wanted by many before their order can be wrong. A fault, or servers that change their parts, need only
// a few commands around them.
var (
	long  = extent{least: 5, spread: 25, length: 5 * time.Second, held: 4 * time.Second}
	short = extent{least: 3, spread: 10, length: 2 * time.Second, held: 1600 * time.Millisecond}
)

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	p := &plan{seed: seed, proxies: 1 + rng.IntN(3), clients: 2 + rng.IntN(5)}
	var faults []string
	convoy, narrow := false, false
	arranged := rand.New(rand.NewPCG(seed, 3))
	p.shape = shapes[arranged.IntN(len(shapes))]
	extent := short
	switch rng.IntN(8) {
	case 0:
		p.calm = true
	case 1:
		p.calm = true
		faults = []string{"hang up"}
	case 2:
		p.calm, convoy = true, true
		p.clients += 4
	case 3:
		faults = []string{"cut lane", "cut own", "cut own", "cut sub", "stall lane", "stall own", "hang up"}
	case 4:
		faults = []string{"kill", "pause", "hang up", "cut lane"}
	case 5:
		faults = []string{"step", "evict", "flush", "force"}
	case 6:
		faults = []string{"cut own", "stall own", "outage"}
		if narrow = rng.IntN(2) == 0; narrow { // calls of one session meet
			p.proxies, p.clients = 1, 1+rng.IntN(2)
			faults = []string{"cut own", "stall own", "cut lane"}
		}
	default:
		faults = []string{"cut lane", "cut own", "cut sub", "stall lane", "stall own", "kill", "pause", "hang up", "step", "evict", "flush", "force", "outage"}
	}
	back := rng.IntN(2) == 0 // the clock is set back in this history; then fences are not lost in it
	if p.calm && p.shape == single && len(faults) == 0 {
		extent = long
	}
	p.length = between(50*time.Millisecond, extent.length)
	if convoy {
		p.length = between(20*time.Millisecond, 300*time.Millisecond)
	}
	spread := func() time.Duration {
		if rng.IntN(3) == 0 {
			return between(0, min(p.length, 20*time.Millisecond))
		}
		return between(0, p.length)
	}
	used := keys[:1+rng.IntN(len(keys))]
	if rng.IntN(6) == 0 {
		used = keys[2:]
	}
	if narrow {
		used = keys[:1]
	}
	explicit := rng.IntN(3) == 0 // some lock for an owner that several sessions share
	for n := extent.least + rng.IntN(extent.spread); n > 0; n-- {
		a := action{at: spread(), kind: "send", who: rng.IntN(p.clients)}
		key := used[rng.IntN(len(used))]
		verb := "FAIRLOCK"
		if key != "f" {
			verb = pick("LOCK", "LOCK", "TRYLOCK", "FAIRLOCK")
		}
		line := verb + " " + key
		if rng.IntN(3) == 0 {
			line += fmt.Sprintf(" WAIT %d", rng.IntN(500))
		} else if verb != "TRYLOCK" && rng.IntN(2) == 0 {
			line += fmt.Sprintf(" WAIT %d", 1000+rng.IntN(9000))
		}
		if rng.IntN(5) == 0 {
			line += fmt.Sprintf(" PX %d", 50+rng.IntN(4000))
		}
		if rng.IntN(5) == 0 {
			line += fmt.Sprintf(" GRACE %d", rng.IntN(2)*rng.IntN(1000))
		}
		if rng.IntN(8) == 0 {
			line += fmt.Sprintf(" MAXHOLD %d", 200+rng.IntN(5000))
		}
		unlock, owner := "UNLOCK "+key, ""
		if explicit && key != "f" && rng.IntN(2) == 0 {
			owner = fmt.Sprintf(" OWNER o%d", rng.IntN(2))
			line += owner
			unlock += owner
		}
		a.line = line
		p.actions = append(p.actions, a)
		if rng.IntN(6) == 0 { // deepens
			a.at += between(0, 20*time.Millisecond)
			p.actions = append(p.actions, a)
		}
		if rng.IntN(10) == 0 {
			longer := action{at: a.at + between(0, 100*time.Millisecond), kind: "send", who: a.who, line: fmt.Sprintf("EXTENDLOCK %s PX %d", key, 100+rng.IntN(5000))}
			if owner != "" {
				longer.who, longer.line = rng.IntN(p.clients), longer.line+owner
			}
			p.actions = append(p.actions, longer)
		}
		if rng.IntN(8) > 0 {
			a.at += between(0, 30*time.Millisecond)
			if !convoy && rng.IntN(3) == 0 {
				a.at += between(0, extent.held)
			}
			a.line = unlock
			if rng.IntN(3) == 0 {
				a.n = 1 // pipelined
			}
			p.actions = append(p.actions, a)
		}
	}
	if len(faults) > 0 {
		most := 6
		if narrow {
			most = 15
		}
		for n := 1 + rng.IntN(most); n > 0; n-- {
			a := action{at: spread(), kind: faults[rng.IntN(len(faults))], d: between(time.Millisecond, 300*time.Millisecond), n: rng.IntN(3)}
			switch a.kind {
			case "hang up":
				a.who = rng.IntN(p.clients)
			case "evict", "force":
				a.line = pick("a", "b", "f", "redisson_lock_queue:{f}", "redisson_lock_queue:{a}", "redisson_lock_timeout:{f}")
				if a.kind == "force" {
					a.line = pick("a", "b", "f")
				}
			case "flush":
				if back {
					continue
				}
			case "step":
				a.d = between(-5*time.Second, 5*time.Second)
				if !back {
					a.d = max(a.d, -a.d)
				}
			case "pause":
				a.who = rng.IntN(p.proxies)
				a.d = between(10*time.Millisecond, 5*time.Second)
			case "outage":
				a.d = between(100*time.Millisecond, 8*time.Second)
			default:
				a.who = rng.IntN(p.proxies)
				if rng.IntN(3) == 0 {
					a.d *= 20 // long enough for leases to end
				}
			}
			a.d2 = between(0, 4*time.Second)
			if narrow {
				a.n = 2
			}
			if rng.IntN(2) == 0 {
				a.d2 = between(0, 5*time.Millisecond)
			}
			p.actions = append(p.actions, a)
		}
	}
	switch rng.IntN(4) {
	case 0:
		p.slowSub = between(5*time.Millisecond, 100*time.Millisecond)
	case 1:
		p.slowOwn = between(time.Millisecond, 30*time.Millisecond)
	}
	if seed%5 == 0 {
		p.limit(rand.New(rand.NewPCG(seed, 7)))
	} else {
		p.share(rand.New(rand.NewPCG(seed, 6)))
	}
	if rng := rand.New(rand.NewPCG(seed, 2)); rng.IntN(4) == 0 {
		p.replicas = 2
		p.synchronize(rng)
	}
	p.arrange(arranged)
	if rng := rand.New(rand.NewPCG(seed, 4)); rng.IntN(6) == 0 {
		p.repeats = time.Duration(1 + rng.Int64N(int64(100*time.Millisecond)))
	}
	slices.SortStableFunc(p.actions, func(a, b action) int { return int(a.at - b.at) })
	return p
}

// do lets an action happen.
func (w *world) do(a *action) {
	w.touched = true
	if a.kind != "send" && w.keep {
		w.note("--- %s %d %s %v %v %d", a.kind, a.who, a.line, a.d.Round(time.Millisecond), a.d2.Round(time.Millisecond), a.n)
	}
	proxy := w.proxies[a.who%len(w.proxies)]
	switch a.kind {
	case "send":
		w.clients[a.who].send(parsed(a.line, a.n == 1))
	case "hang up":
		w.replace(a.who)
	case "replicas away":
		for _, s := range w.servers {
			s.awayTill = max(s.awayTill, w.now+a.d)
		}
	case "fail over", "kill primary", "stop primary", "cut off", "promote", "reshard":
		w.move(a)
	case "cut wait":
		proxy.link.wait.cut(a.n, a.d2, a.d)
	case "stall wait":
		proxy.link.wait.stall(a.d)
	case "cut lane":
		proxy.lane.cut(a.n, a.d2, a.d)
	case "cut own":
		proxy.link.own.cut(a.n, a.d2, a.d)
	case "cut sub":
		proxy.link.cutSubscriptions(a.d, a.d2)
	case "outage":
		for _, p := range w.proxies {
			p.lane.cut(a.n, a.d2/100, a.d)
			p.link.own.cut(a.n, a.d2/100, a.d)
			p.link.cutSubscriptions(a.d, 0)
		}
	case "stall lane":
		proxy.lane.stall(a.d)
	case "stall own":
		proxy.link.own.stall(a.d)
	case "pause":
		proxy.pausedUntil = max(proxy.pausedUntil, w.now+a.d)
	case "kill":
		proxy.kill(a.n, a.d2)
		w.proxies[a.who%len(w.proxies)] = w.newProxy()
		for i, c := range w.clients {
			if c.p == proxy {
				w.replace(i)
			}
		}
	case "step":
		w.stepped += a.d
		w.rules.disturb(locks...)
	case "evict":
		w.rules.disturb(locks...)
		w.rules.torn = w.rules.torn || len(a.line) > 1
		r := w.rules
		r.find(strings.Trim(a.line[strings.IndexByte(a.line, '{')+1:], "}")).command("DEL", a.line)
	case "force":
		w.rules.disturb(a.line)
		line := "FORCEUNLOCK " + a.line
		for _, holder := range w.clients {
			if b := holder.anyBelief(a.line); a.n == 1 && b != nil { // by the handle: the holder is not told
				line = fmt.Sprintf("UNLOCK %s FENCE %d", a.line, b.fence)
				b.vague = true
				*holder.blurred.of(a.line) = true
				break
			}
		}
		for _, c := range w.clients {
			if c.current == nil && c.anyBelief(a.line) == nil {
				c.send(parsed(line, false))
				break
			}
		}
	case "flush":
		w.rules.disturb(locks...)
		for _, s := range w.servers {
			if w.shape != single {
				w.rules.forgotten(s)
			}
			if s.shard.primary == s {
				s.command("FLUSHALL")
			}
		}
	default:
		panic(a.kind)
	}
}

// replace ends a client, and has another one come in its place.
func (w *world) replace(slot int) {
	w.touched = true
	old := w.clients[slot]
	p := old.p
	if p.killed {
		old.ended = true
		for _, other := range w.proxies {
			p = other
		}
	} else {
		old.hangUp()
	}
	w.seat(slot, p)
}

func (w *world) seat(slot int, p *proxy) {
	c := w.newClient(slot, p, 2+int(w.ids%3)/2+int(w.ids%2))
	c.proto = min(c.proto, 3)
	w.clients[slot] = c
	w.all = append(w.all, c)
}

func parsed(line string, pipelined bool) *order {
	cmd, err := grammar.Parse(bytes.Fields([]byte(line)))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", line, err))
	}
	return &order{line, cmd, pipelined}
}

// play lets a history happen. It returns what broke a rule, if anything did.
func (p *plan) play(keep bool) (w *world) {
	w = &world{repeats: p.repeats, again: rand.New(rand.NewPCG(p.seed, 5)), chance: rand.New(rand.NewPCG(p.seed, 2)), calm: p.calm, slowSub: p.slowSub, slowOwn: p.slowOwn, keep: keep}
	defer w.crashed()
	w.build(p)
	w.rules = newRules(w, keys)
	if slices.ContainsFunc(p.actions, func(a action) bool { return a.key("") == sharedKey }) {
		w.rules.keys, w.rules.held = locksOfHashes, locksOfHashes
	}
	if p.permits {
		w.permits = newPermits(w)
		w.rules.keys, w.rules.held = nil, []string{permitKey}
	}
	for range p.proxies {
		w.proxies = append(w.proxies, w.newProxy())
	}
	w.clients = make([]*client, p.clients)
	for i := range w.clients {
		w.seat(i, w.proxies[i%len(w.proxies)])
	}
	for i := range p.actions {
		a := &p.actions[i]
		w.in(a.at, nil, func() { w.do(a) })
	}
	last := time.Duration(0)
	if len(p.actions) > 0 {
		last = p.actions[len(p.actions)-1].at
	}
	w.run(last + time.Millisecond)
	w.settle()
	w.end()
	return w
}

// Bounds of the end of a history, without faults.
const (
	healed   = 14 * time.Second // cut connections are up again, what was late has come, and leases of nobody have ended
	answered = 90 * time.Second
	cleaned  = 330 * time.Second // a place in a queue that could not be left at once has its deadline after 300 s
)

// settle is the end of a history: nothing is broken any more, and everything must come to its end.
func (w *world) settle() {
	w.note("--- no more faults")
	w.lag = 0
	for _, c := range w.clients {
		c.todo = nil
	}
	start, seated := w.now, len(w.all)
	for _, p := range w.proxies { // what is late by more than usual has to come first
		start = max(start, p.pausedUntil, p.blind)
		for _, r := range p.roads() {
			start = max(start, r.busy())
		}
	}
	if w.calm {
		w.run(start + healed/3)
	} else {
		w.run(start + healed)
	}
	w.quiet, w.rules.settled = true, w.now
	w.compare()
	w.note("--- everybody gives back what is held")
	for busy := true; busy && w.broken == ""; {
		busy = false
		for _, c := range w.clients {
			w.unlockAll(c)
			if c.current != nil && c.holdsAny() && w.now > start+healed+3*time.Second {
				w.replace(c.slot) // it waits for itself, or for one that waits for it
				break
			}
			busy = busy || c.current != nil || len(c.todo) > 0 || c.pending > 0 || c.holdsAny()
		}
		if busy && w.now > start+healed+answered {
			for _, c := range w.clients {
				if s := c.current; s != nil {
					w.fail("a command without an end", "%s: %s", c, s.line)
				}
			}
			w.fail("no end", "clients still hold or wait")
		}
		w.run(w.now + 20*time.Millisecond)
	}
	if len(w.all) > seated || slices.ContainsFunc(w.clients, func(c *client) bool { return c.blurred != byLock[bool]{} }) {
		w.run(w.now + healed) // leases of nobody may be left
	}
	w.compare()
	if w.broken != "" {
		return
	}
	w.note("--- everybody goes")
	w.touched = true
	for _, c := range w.clients {
		c.hangUp()
	}
	w.run(w.now + cleaned)
	if w.broken == "" {
		w.rules.gone()
	}
}

// compare waits until nothing is on its way, and compares what everybody knows.
func (w *world) compare() {
	wrong := ""
	for range 10 { // something may be on its way
		if wrong = w.rules.agree(); wrong == "" || w.broken != "" {
			return
		}
		w.run(w.now + 50*time.Millisecond)
	}
	w.fail("the ledger is wrong", "%s", wrong)
}

// unlockAll has a client that is not busy give back what it knows to hold.
func (w *world) unlockAll(c *client) {
	if c.current != nil || len(c.todo) > 0 {
		return
	}
	if len(c.permits) > 0 {
		c.send(parsed("UNLOCK "+permitKey, false))
		return
	}
	for _, key := range locks {
		if b := *c.holds.of(key); b != nil {
			c.send(parsed("UNLOCK "+key, false))
			return
		}
	}
	if len(c.named) > 0 {
		c.send(parsed(fmt.Sprintf("UNLOCK %s OWNER %s", c.named[0].key, c.named[0].owner), false))
	}
}
