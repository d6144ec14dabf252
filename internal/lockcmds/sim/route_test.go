package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// How the servers of a history are arranged.
const (
	single    = iota
	sentinels // a primary and its replicas: proxies learn in time which is the primary
	cluster   // several of these, each with a part of the hash slots
)

// hashSlot is a hash slot that a history uses. All keys of one lock are in one.
type hashSlot struct {
	shard *shard // that owns it
	to    *shard // to which it is being moved; nil: it is not
}

// slotPlaces are the places of the slots of names that were asked for, by any history.
var slotPlaces = map[string]int{}

// slotOf is the place in world.slots of the slot of a key or a channel: that of the lock in keys.
func (w *world) slotOf(name string) int {
	if w.shape != cluster {
		return 0
	}
	if len(name) == 1 {
		return place(name)
	}
	at, ok := slotPlaces[name]
	if !ok {
		n := hashslot.Of([]byte(name))
		at = max(0, slices.IndexFunc(locks, func(lock string) bool { return hashslot.Of([]byte(lock)) == n })) // the proxies' channel is of no lock
		slotPlaces[name] = at
	}
	return at
}

// road is all connections of a proxy for one purpose, one for each server.
type road struct {
	p                   *proxy
	name                string
	slowThere, slowBack time.Duration
	reconnect           func(at *server)
	conns               []*conn // by the place of the server; nil: there was no need
}

func (p *proxy) newRoad(name string) *road { return &road{p: p, name: name} }

// to is the connection to a server.
func (r *road) to(s *server) *conn {
	at := s.place
	if r.conns == nil {
		r.conns = make([]*conn, len(r.p.w.servers))
	}
	c := r.conns[at]
	if c == nil {
		c = &conn{w: r.p.w, p: r.p, name: r.name, at: s, up: true, since: r.p.w.now, slowThere: r.slowThere, slowBack: r.slowBack}
		if r.reconnect != nil {
			c.reconnect = func() { r.reconnect(s) }
		}
		r.conns[at] = c
	}
	return c
}

// all are the connections that there are, or would be.
func (r *road) all() (list []*conn) {
	if r.p.w.shape == single {
		r.to(r.p.w.servers[0])
	}
	for _, c := range r.conns {
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

func (r *road) cut(keep int, late, down time.Duration) {
	for _, c := range r.all() {
		c.cut(keep, late, down)
	}
}

func (r *road) stall(d time.Duration) {
	for _, c := range r.all() {
		c.stall(d)
	}
}

// busy is until when requests are on their way.
func (r *road) busy() (until time.Duration) {
	for _, c := range r.all() {
		until = max(until, c.there)
	}
	return until
}

// serve carries out what arrives at a server for some keys, or refuses it as Redis does. asking: it was sent there by a
// server that is giving the slot away.
func (s *server) serve(keys []string, asking bool, work work) resp.Value {
	w := s.w
	switch {
	case w.shape == single, len(keys) == 0:
		return work.on(s)
	case !s.primary && w.shape == sentinels:
		return errorReply("READONLY You can't write against a read only replica.")
	case w.shape == sentinels:
		return work.on(s)
	case s.barred <= w.now:
		return errorReply("CLUSTERDOWN The cluster is down")
	}
	at := w.slotOf(keys[0])
	for _, key := range keys[1:] {
		if w.slotOf(key) != at {
			return errorReply("CROSSSLOT Keys in request don't hash to the same slot")
		}
	}
	slot := &w.slots[at]
	here, missing := 0, 0
	for _, key := range keys {
		if s.get(key) != nil {
			here++
		} else {
			missing++
		}
	}
	defer func() { s.moving = stays }()
	switch {
	case s.primary && s.shard == slot.shard && slot.to == nil:
		return work.on(s)
	case s.primary && s.shard == slot.shard && missing == 0:
		s.moving = leaves
		return work.on(s)
	case s.primary && s.shard == slot.shard && here > 0 && w.strict:
		return errorReply("TRYAGAIN Multiple keys request during rehashing of slot")
	case s.primary && s.shard == slot.shard:
		return errorReply("ASK")
	case s.primary && s.shard == slot.to && asking && len(keys) > 1 && missing > 0:
		return errorReply("TRYAGAIN Multiple keys request during rehashing of slot")
	case s.primary && s.shard == slot.to && asking:
		s.moving = arrives
		return work.on(s)
	}
	return errorReply("MOVED")
}

const (
	// hops bounds the redirections that one call follows, as in redislink.Cluster.
	hops = 4
	// failoverWait is how long a command of a session is sent again after a refusal.
	failoverWait = time.Second
)

// route sends a request to the server that the proxy's view names, and follows redirections while its caller waits.
func (p *proxy) route(r *road, slot int, keys []string, work work, to outcome) {
	w := p.w
	if w.shape == single {
		r.to(w.servers[0]).send(keys, false, work, to)
		return
	}
	t := &trip{road: r, slot: slot, keys: keys, work: work, outcome: to, left: hops}
	t.to(p.view[slot], false)
}

// trip is a request that follows redirections.
type trip struct {
	outcome // of the last one
	work    work
	road    *road
	slot    int
	keys    []string
	left    int
}

func (t *trip) to(s *server, asking bool) {
	t.road.to(s).send(t.keys, asking, t.work, t)
}

func (t *trip) done(v resp.Value, err error) {
	p := t.road.p
	slot := &p.w.slots[t.slot]
	var next *server
	switch text := text(v); {
	case err == nil && !v.IsError():
		t.outcome.done(v, err)
		return
	case err != nil:
		p.refresh(nil)
		t.outcome.done(v, err)
		return
	case text == "ASK" && slot.to != nil:
		next = slot.to.primary
	case text == "ASK", text == "MOVED":
		next = slot.shard.primary
		p.refresh(nil)
	default:
		p.refresh(nil)
		t.outcome.done(v, nil)
		return
	}
	if t.left--; t.left == 0 || !t.waits() {
		t.outcome.done(resp.Value{}, redislink.ErrUnsent)
		return
	}
	t.to(next, text(v) == "ASK")
}

func text(v resp.Value) string { return string(v.Str) }

// errand is a command of a session on its way. It waits for a server that moves.
type errand struct {
	scriptCall
	c     *client
	s     *slot // whose reply is due
	call  contract.Call
	home  int           // the place of its hash slot
	sent  time.Duration // the latest time
	until time.Duration // it may be sent again; 0: it has not been refused
	pause time.Duration // before its latest attempt: they become rarer, as with topology.Attempts
}

func (e *errand) try() {
	e.sent = e.p.w.now
	e.p.route(e.p.lane, e.home, e.keys, e, e)
}

func (*errand) waits() bool { return true }

func (e *errand) done(v resp.Value, err error) {
	c, w := e.c, e.c.w
	if w.shape == single {
		c.answered(e, v, err)
		return
	}
	passes := errors.Is(err, redislink.ErrUnsent) || err == nil && v.IsError() && (hasCode(v, "TRYAGAIN") || hasCode(v, "CLUSTERDOWN"))
	if e.until == 0 || w.now-e.sent > failoverWait { // a server has let it wait, and refuses it now
		e.until, e.pause = w.now+failoverWait, 0
	}
	if passes && w.now < e.until {
		e.pause = min(max(5*time.Millisecond, 2*e.pause), 100*time.Millisecond)
		w.in(e.pause+w.latency(), e.p, e.try)
		return
	}
	c.answered(e, v, err)
}

func hasCode(v resp.Value, code string) bool {
	return len(v.Str) > len(code) && string(v.Str[:len(code)]) == code && v.Str[len(code)] == ' '
}

// refresh has the proxy ask which servers there are. then may be nil.
func (p *proxy) refresh(then func()) {
	w := p.w
	if w.shape == single {
		return
	}
	if then != nil {
		p.then = append(p.then, then)
	}
	if p.asking {
		return
	}
	p.asking = true
	w.in(max(2*w.latency(), p.blind-w.now), p, func() {
		p.asking = false
		p.see()
		all := p.then
		p.then = nil
		for _, f := range all {
			f()
		}
	})
}

// farewell is the time that a server which serves nothing any more has for its answers. Then its connections are
// aborted.
const farewell = 100 * time.Millisecond

// see makes the proxy's view that of the servers that count.
func (p *proxy) see() {
	w := p.w
	if p.blind > w.now {
		return
	}
	var left []*server
	for i := range w.slots {
		now := w.slots[i].shard.primary
		if old := p.view[i]; old != now {
			left = append(left, old)
			p.view[i], p.sawAt = now, w.now
		}
	}
	if len(left) == 0 {
		return
	}
	w.note("%s: sees %v", p, p.view)
	p.link.rehome()
	left = slices.DeleteFunc(left, func(s *server) bool { return slices.Contains(p.view, s) })
	for _, s := range left {
		p.leftAt[s] = w.now
	}
	w.in(farewell, p, func() {
		for _, s := range left {
			if slices.Contains(p.view, s) || s.shard.primary == s { // it has other slots, or gets some
				continue
			}
			if w.now < p.leftAt[s]+farewell { // it was back, and has left again
				continue
			}
			s.subs.drop(p.link)
			for _, r := range p.roads() {
				r.to(s).cut(w.chance.IntN(2), w.upTo(4*time.Millisecond), 0)
			}
		}
	})
}
