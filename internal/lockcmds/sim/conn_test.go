package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// conn is an ordered connection of a proxy to a server. What has been sent when it is cut may be lost, be executed, or
// be executed late: the part that Redis has in its socket, always the first of it.
type conn struct {
	w    *world
	p    *proxy
	name string
	at   *server

	slowThere time.Duration // what a request takes longer on its way, at most
	slowBack  time.Duration // what an answer does
	up        bool
	since     time.Duration // it is up
	gen       int           // counts cuts
	there     time.Duration // when the latest request arrives
	back      time.Duration // when the latest reply arrives
	waiting   []*request    // sent, and not answered
	reconnect func()        // when it is up again
}

type request struct {
	conn   *conn
	gen    int
	keys   []string // that decide which server serves it; none: any does
	asking bool     // as in server.serve
	work   work
	begin  func(answer func(resp.Value)) // without work: the server may answer later
	to     outcome
	ran    bool
	late   time.Duration // of a connection that was cut: when it runs all the same; negative: never
	ended  bool
}

// work is what a server does for a request.
type work interface{ on(at *server) resp.Value }

type doing func(at *server) resp.Value

func (f doing) on(at *server) resp.Value { return f(at) }

// outcome takes the answer to a request, or an error.
type outcome interface {
	done(v resp.Value, err error)
	waits() bool // for another attempt, too
}

type then func(v resp.Value, err error)

func (f then) done(v resp.Value, err error) { f(v, err) }
func (then) waits() bool                    { return true }

func (q *request) end(v resp.Value, err error) {
	if !q.ended {
		q.ended = true
		q.to.done(v, err)
	}
}

// open reports whether something can be sent.
func (c *conn) open() bool { return c.up && c.at.up && (c.at.primary || c.w.shape != sentinels) }

// send sends a request. to is told once, later.
func (c *conn) send(keys []string, asking bool, work work, to outcome) {
	c.post(&request{conn: c, gen: c.gen, keys: keys, asking: asking, work: work, to: to})
}

// sendBlocking is send for a request that the server may answer later.
func (c *conn) sendBlocking(begin func(answer func(resp.Value)), to outcome) {
	c.post(&request{conn: c, gen: c.gen, begin: begin, to: to})
}

func (c *conn) post(q *request) {
	if !c.open() {
		c.w.in(c.w.latency()/10, c.p, func() { q.end(resp.Value{}, redislink.ErrUnsent) })
		return
	}
	c.waiting = append(c.waiting, q)
	c.there = max(c.there, c.w.now+c.w.latency()+c.w.upTo(c.slowThere))
	c.w.in(c.there-c.w.now, nil, func() { c.arrive(q) })
}

func (c *conn) arrive(q *request) {
	if q.gen != c.gen && q.late < 0 {
		return
	}
	if q.late > 0 {
		d := q.late
		q.late = 0
		c.w.in(d, nil, func() { c.arrive(q) })
		return
	}
	switch {
	case !c.at.up:
		return
	case c.at.hides(c.p): // TCP sends it again until it arrives
		c.at.kept = append(c.at.kept, func() { c.arrive(q) })
		return
	case c.at.halted > c.w.now:
		c.w.in(c.at.halted-c.w.now, nil, func() { c.arrive(q) })
		return
	}
	q.ran = true
	if q.gen != c.gen {
		c.w.note("%s %s: late, from a connection that was cut:", c.p, c.name)
		c.w.rules.torn = true
	}
	if q.work != nil {
		c.answer(q, c.at.serve(q.keys, q.asking, q.work))
	} else {
		q.begin(func(v resp.Value) { c.answer(q, v) })
	}
}

// answer sends the answer to a request back.
func (c *conn) answer(q *request, v resp.Value) {
	if q.gen != c.gen {
		return
	}
	c.back = max(c.back, c.w.now+c.w.latency()+c.w.upTo(c.slowBack))
	c.w.in(c.back-c.w.now, c.p, func() { c.receive(q, v) })
}

// receive is the end of a request whose answer is there.
func (c *conn) receive(q *request, v resp.Value) {
	if q.gen != c.gen {
		return
	}
	if i := slices.Index(c.waiting, q); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	q.end(v, nil)
}

// cut breaks the connection. keep is how many of the requests that have not arrived are executed all the same, late by
// as much.
func (c *conn) cut(keep int, late, down time.Duration) {
	if !c.up {
		return
	}
	c.up = false
	c.gen++
	waiting := c.waiting
	c.waiting = nil
	for _, q := range waiting {
		if q.ran {
			continue
		}
		if q.late = -1; keep > 0 {
			keep--
			q.late = late
		}
	}
	for _, q := range waiting {
		c.w.in(0, c.p, func() { q.end(resp.Value{}, redislink.ErrInDoubt) })
	}
	c.there, c.back = 0, 0
	c.w.in(down, c.p, func() {
		c.up, c.since = true, c.w.now
		if c.reconnect != nil {
			c.reconnect()
		}
	})
}

// stall has everything on the connection take longer once, and the engine's patience end at times.
func (c *conn) stall(d time.Duration) {
	c.there = min(max(c.there, c.w.now)+d, c.w.now+redislink.AnswerLimit+time.Second)
}

// link is a proxy's own way to Redis: redislink.Topology. Its connections for commands, for subscriptions and for WAIT
// are apart.
type link struct {
	p              *proxy
	own, sub, wait *road
	listener       redislink.Listener
	wanted         []string
	homes          map[string]*server // by channel: where it is subscribed, or is to be
	nodes          []node             // by slot
}

func newLink(p *proxy) *link {
	l := &link{p: p, own: p.newRoad("own"), sub: p.newRoad("sub"), wait: p.newRoad("wait"), homes: map[string]*server{}}
	for slot := range p.w.slots {
		l.nodes = append(l.nodes, node{l, slot})
	}
	l.sub.slowThere, l.own.slowBack = p.w.slowSub, p.w.slowOwn
	l.sub.reconnect = func(at *server) {
		for _, channel := range l.wanted {
			if l.homes[channel] == at {
				l.subscribe(channel)
			}
		}
	}
	return l
}

// node is one hash slot, or the one server: redislink.Node.
type node struct {
	*link
	slot int
}

// home is the server of some nodes, as the proxy sees it: redislink.Server.
type home struct {
	l  *link
	at *server
}

func (l *link) Node(key string) redislink.Node { return &l.nodes[l.p.w.slotOf(key)] }
func (l *link) Servers() script.Servers {
	return script.Servers{Slots: l.p.w.shape == cluster, Sharded: l.p.w.shape == cluster}
}
func (l *link) Listen(to redislink.Listener)   { l.listener = to }
func (l *link) Run(context.Context)            {}
func (l *link) Close()                         {}
func (l *link) name(s redislink.Script) string { return s.(interface{ Name() string }).Name() }
func (n *node) Server() redislink.Server       { return home{n.link, n.p.view[n.slot]} }

// ask sends a request on the own connection and waits for its outcome, as the real link does, for AnswerLimit at most.
func (n *node) ask(ctx context.Context, keys []string, work work) (resp.Value, error) {
	return n.await(ctx, func(to outcome) { n.p.route(n.own, n.slot, keys, work, to) })
}

// await waits for the outcome of a request until ctx ends, and for AnswerLimit at most.
func (l *link) await(ctx context.Context, send func(to outcome)) (resp.Value, error) {
	w := l.p.w
	if w.over || l.p.killed {
		return resp.Value{}, redislink.ErrUnsent
	}
	limit := redislink.AnswerLimit
	if at, ok := ctx.Deadline(); ok {
		limit = min(limit, at.Sub(epoch.Add(w.now)))
	}
	a := w.await()
	send(a)
	a.limit = w.in(limit, l.p, func() { a.done(resp.Value{}, redislink.ErrInDoubt) })
	return a.outcome()
}

func (n *node) Eval(ctx context.Context, s redislink.Script, keys, args []string) (resp.Value, error) {
	w := n.p.w
	if !w.over && !n.p.killed {
		w.rules.sent(n.p, n.name(s), keys, args)
	}
	sent := w.now
	v, err := n.ask(ctx, keys, &scriptCall{n.p, s, keys, args})
	if err == nil && !w.over {
		w.rules.answered(n.p, n.name(s), keys, args, sent, v)
	}
	return v, err
}

// scriptCall is a script on its way to a server.
type scriptCall struct {
	p          *proxy
	script     redislink.Script
	keys, args []string
}

func (c *scriptCall) on(at *server) resp.Value { return at.w.eval(at, c.p, c.script, c.keys, c.args) }

func (l *link) Subscribe(channel string) {
	if !slices.Contains(l.wanted, channel) {
		l.wanted = append(l.wanted, channel)
	}
	l.subscribe(channel)
}

func (l *link) Unsubscribe(channel string) {
	l.wanted = slices.DeleteFunc(l.wanted, func(c string) bool { return c == channel })
	l.leave(channel, l.homes[channel])
	delete(l.homes, channel)
}

// leave gives up a channel at a server.
func (l *link) leave(channel string, at *server) {
	l.sub.to(at).send(nil, false, doing(func(at *server) resp.Value {
		at.subs.remove(channel, l)
		return resp.Value{}
	}), then(func(resp.Value, error) {}))
}

// subscribe subscribes a channel at the server to which it belongs by the present view.
func (l *link) subscribe(channel string) {
	w := l.p.w
	slot := w.slotOf(channel)
	at := l.p.view[slot]
	l.homes[channel] = at
	c := l.sub.to(at)
	gen := c.gen
	c.send(nil, false, doing(func(at *server) resp.Value {
		if !at.primary && w.shape == cluster || w.slots[slot].shard != at.shard {
			return errorReply("MOVED")
		}
		if gen == c.gen { // a connection that was cut has no messages
			at.subs.add(channel, l)
		}
		return resp.Value{}
	}), then(func(v resp.Value, err error) {
		switch {
		case !slices.Contains(l.wanted, channel) || l.homes[channel] != at:
		case errors.Is(err, redislink.ErrUnsent) && c.up:
			w.in(reconnectPause, l.p, func() {
				if slices.Contains(l.wanted, channel) && l.homes[channel] == at {
					l.subscribe(channel)
				}
			})
		case err != nil: // the connection is made anew
		case v.IsError():
			l.moved(channel)
		default:
			if w.keep {
				w.note("%s: subscribed to %s", l.p, channel)
			}
			l.listener.Confirmed(channel)
		}
	}))
}

// reconnectPause is the pause between attempts to reach a server that is not there, or is not a primary.
const reconnectPause = 30 * time.Millisecond

// moved subscribes a channel anew, when the proxy has asked where it belongs.
func (l *link) moved(channel string) {
	l.p.refresh(func() {
		if slices.Contains(l.wanted, channel) {
			l.subscribe(channel)
		}
	})
}

// rehome subscribes the channels anew whose server is another one by the present view.
func (l *link) rehome() {
	for _, channel := range l.wanted {
		if at := l.homes[channel]; at != l.p.view[l.p.w.slotOf(channel)] {
			l.leave(channel, at)
			l.subscribe(channel)
		}
	}
}

// message is one that a server has for this proxy. ended: it is the end of the subscription, unasked. Any client may
// publish on the channel of a lock, so an engine must bear messages that come twice, and late.
func (l *link) message(at *server, channel, text string, ended bool) {
	c := l.sub.to(at)
	gen := c.gen
	if at.hides(l.p) {
		return
	}
	c.back = max(c.back, c.w.now+c.w.latency())
	arrive := func() {
		switch {
		case c.gen != gen || !slices.Contains(l.wanted, channel):
		case !ended:
			if c.w.keep {
				c.w.note("%s: message on %s: %s", l.p, channel, text)
			}
			l.listener.Published(channel, text)
		case l.homes[channel] == at:
			l.moved(channel)
		}
	}
	c.w.in(c.back-c.w.now, l.p, arrive)
	if c.w.repeats > 0 && c.w.again.IntN(2) == 0 { // it overtakes, and is overtaken
		c.w.in(c.back-c.w.now+time.Duration(c.w.again.Int64N(int64(c.w.repeats))), l.p, arrive)
	}
}

// cutSubscriptions breaks the subscriber's connections. Redis counts each as a listener for as long as ghost.
func (l *link) cutSubscriptions(down, ghost time.Duration) {
	for _, c := range l.sub.all() {
		if !c.up {
			continue
		}
		gone := c.at.subs.drop(l)
		if ghost > 0 {
			c.at.subs.haunt(l.p.w, gone, ghost)
		}
		c.cut(0, 0, down)
	}
}

// subscriptions is who listens, as a server sees it.
type subscriptions struct {
	at     *server
	links  map[string][]*link
	ghosts map[string]int // connections that were cut silently
}

func newSubscriptions(at *server) subscriptions {
	return subscriptions{at: at, links: map[string][]*link{}, ghosts: map[string]int{}}
}

func (s *subscriptions) add(channel string, l *link) {
	if !slices.Contains(s.links[channel], l) {
		s.links[channel] = append(s.links[channel], l)
	}
}

func (s *subscriptions) remove(channel string, l *link) {
	s.links[channel] = slices.DeleteFunc(s.links[channel], func(o *link) bool { return o == l })
}

// drop takes a connection out and returns its channels.
func (s *subscriptions) drop(l *link) (channels []string) {
	for channel, links := range s.links {
		if slices.Contains(links, l) {
			channels = append(channels, channel)
			s.remove(channel, l)
		}
	}
	return channels
}

// end ends the subscriptions to the channels of a slot, and says so.
func (s *subscriptions) end(slot int) {
	w := s.at.w
	for _, channel := range slices.Sorted(maps.Keys(s.links)) {
		if w.slotOf(channel) != slot {
			continue
		}
		links := s.links[channel]
		delete(s.links, channel)
		for _, l := range links {
			l.message(s.at, channel, "", true)
		}
	}
}

func (s *subscriptions) haunt(w *world, channels []string, d time.Duration) {
	for _, channel := range channels {
		s.ghosts[channel]++
	}
	w.in(d, nil, func() {
		for _, channel := range channels {
			s.ghosts[channel]--
		}
	})
}

// publish tells a message to the listeners here. The channel that proxies share is no shard channel: those of all
// servers hear it.
func (s *subscriptions) publish(channel, text string) int64 {
	if channel == script.ForcedChannel {
		for _, at := range s.at.w.servers {
			at.subs.tell(channel, text)
		}
		return 0
	}
	return s.tell(channel, text)
}

// listens reports whether a connection listens, as the server believes.
func (s *subscriptions) listens(channel string) bool {
	return len(s.links[channel])+s.ghosts[channel] > 0
}

func (s *subscriptions) tell(channel, text string) int64 {
	links := s.links[channel]
	for _, l := range links {
		l.message(s.at, channel, text, false)
	}
	return int64(len(links) + s.ghosts[channel])
}

// Confirm implements redislink.Server.
func (h home) Confirm(f func(redislink.Confirmation) error) error {
	return f(&confirmation{l: h.l, at: h.at})
}

type confirmation struct {
	l       *link
	at      *server
	term    int // of the server at the latest write
	written int // the part of its log then
}

func (c *confirmation) Write(
	ctx context.Context, calls []redislink.Call, n int, limit time.Duration,
) (answers []resp.Value, have int, err error) {
	_, err = c.l.await(ctx, func(to outcome) {
		c.l.wait.to(c.at).send(nil, false, doing(func(at *server) resp.Value {
			answers = nil
			for _, one := range calls {
				answers = append(answers, at.serve(one.Keys, false, &scriptCall{c.l.p, one.Script, one.Keys, one.Args}))
			}
			c.term, c.written = at.term, len(at.log)
			return resp.Value{}
		}), to)
	})
	if err != nil {
		return nil, 0, err
	}
	for _, v := range answers {
		if v.IsError() {
			c.l.p.refresh(nil)
			break
		}
	}
	have, err = c.Wait(ctx, n, limit)
	return answers, have, err
}

func (c *confirmation) Wait(ctx context.Context, n int, limit time.Duration) (have int, err error) {
	v, err := c.l.await(ctx, func(to outcome) {
		c.l.wait.to(c.at).sendBlocking(func(answer func(resp.Value)) { c.at.wait(c.term, c.written, n, limit, answer) }, to)
	})
	if err == nil && v.IsError() {
		err = redislink.Refusal(v.Str)
	}
	return int(v.Int), err
}
