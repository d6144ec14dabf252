package sim

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// conn is an ordered connection of a proxy to Redis. What has been sent when it is cut may be lost, be executed, or be executed late:
// the part that Redis has in its socket, always the first of it.
type conn struct {
	w    *world
	p    *proxy
	name string

	slowThere time.Duration // what a request takes longer on its way, at most
	slowBack  time.Duration // what an answer does
	up        bool
	gen       int           // counts cuts
	there     time.Duration // when the latest request arrives
	back      time.Duration // when the latest reply arrives
	waiting   []*request    // sent, and not answered
	reconnect func()        // when it is up again
}

type request struct {
	gen   int
	exec  func() resp.Value
	done  func(resp.Value, error)
	ran   bool
	late  time.Duration // of a connection that was cut: when it runs all the same; negative: never
	ended bool
}

func (q *request) end(v resp.Value, err error) {
	if !q.ended {
		q.ended = true
		q.done(v, err)
	}
}

// send sends a request. done is called once, later.
func (c *conn) send(exec func() resp.Value, done func(resp.Value, error)) *request {
	q := &request{gen: c.gen, exec: exec, done: done}
	if !c.up {
		c.w.in(c.w.latency()/10, c.p, func() { q.end(resp.Value{}, redislink.ErrUnsent) })
		return q
	}
	c.waiting = append(c.waiting, q)
	c.there = max(c.there, c.w.now+c.w.latency()+c.w.upTo(c.slowThere))
	c.w.in(c.there-c.w.now, nil, func() { c.arrive(q) })
	return q
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
	q.ran = true
	if q.gen != c.gen {
		c.w.note("%s %s: late, from a connection that was cut:", c.p, c.name)
		c.w.rules.torn = true
	}
	v := q.exec()
	if q.gen != c.gen {
		return
	}
	c.back = max(c.back, c.w.now+c.w.latency()+c.w.upTo(c.slowBack))
	c.w.in(c.back-c.w.now, c.p, func() {
		if q.gen != c.gen {
			return
		}
		c.waiting = slices.DeleteFunc(c.waiting, func(o *request) bool { return o == q })
		q.end(v, nil)
	})
}

// cut breaks the connection. keep is how many of the requests that have not arrived are executed all the same, late by as much.
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
		c.up = true
		if c.reconnect != nil {
			c.reconnect()
		}
	})
}

// stall has everything on the connection take longer once, and the engine's patience end at times.
func (c *conn) stall(d time.Duration) {
	c.there = min(max(c.there, c.w.now)+d, c.w.now+redislink.AnswerLimit+time.Second)
}

// link is a proxy's own way to Redis: redislink.Topology and Node.
type link struct {
	p        *proxy
	own, sub *conn
	listener redislink.Listener
	wanted   []string
}

func newLink(p *proxy) *link {
	l := &link{p: p, own: &conn{w: p.w, p: p, name: "own", up: true}, sub: &conn{w: p.w, p: p, name: "sub", up: true}}
	l.sub.slowThere, l.own.slowBack = p.w.slowSub, p.w.slowOwn
	l.sub.reconnect = func() {
		for _, channel := range l.wanted {
			l.subscribe(channel)
		}
	}
	return l
}

func (l *link) Node(string) redislink.Node     { return l }
func (l *link) Servers() script.Servers        { return script.Servers{} }
func (l *link) Listen(to redislink.Listener)   { l.listener = to }
func (l *link) Run(context.Context)            {}
func (l *link) Close()                         {}
func (l *link) name(s redislink.Script) string { return s.(interface{ Name() string }).Name() }

// ask sends a request on the own connection and waits for its outcome, as the real link does, for AnswerLimit at most.
func (l *link) ask(ctx context.Context, exec func() resp.Value) (v resp.Value, err error) {
	w := l.p.w
	if w.over || l.p.killed {
		return resp.Value{}, redislink.ErrUnsent
	}
	limit := redislink.AnswerLimit
	if at, ok := ctx.Deadline(); ok {
		limit = min(limit, at.Sub(epoch.Add(w.now)))
	}
	err = redislink.ErrUnsent // if the history ends first
	w.await(func(wake func()) {
		q := l.own.send(exec, func(answer resp.Value, failure error) {
			v, err = answer, failure
			wake()
		})
		w.in(limit, l.p, func() { q.end(resp.Value{}, redislink.ErrInDoubt) })
	})
	return v, err
}

func (l *link) Eval(ctx context.Context, s redislink.Script, keys, args []string) (resp.Value, error) {
	w := l.p.w
	if !w.over && !l.p.killed {
		w.rules.sent(l.p, l.name(s), keys, args)
	}
	sent := w.now
	v, err := l.ask(ctx, func() resp.Value { return w.eval(l.p, s, keys, args) })
	if err == nil && !w.over {
		w.rules.answered(l.p, l.name(s), keys, args, sent, v)
	}
	return v, err
}

func (l *link) List(ctx context.Context, key string, most int) ([]string, error) {
	v, err := l.ask(ctx, func() resp.Value {
		out := resp.Value{Kind: resp.Array}
		if list, ok := l.p.w.redis.do("LRANGE", []string{key, "0", "-1"}).([]any); ok {
			for i, e := range list {
				if i < most {
					out.Elems = append(out.Elems, resp.Value{Kind: resp.Bulk, Str: []byte(e.(string))})
				}
			}
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range v.Elems {
		list = append(list, string(e.Str))
	}
	return list, nil
}

func (l *link) Publish(ctx context.Context, messages []redislink.Message) error {
	_, err := l.ask(ctx, func() resp.Value {
		for _, m := range messages {
			l.p.w.publish(m.Channel, m.Text)
		}
		return resp.Value{Kind: resp.Integer}
	})
	return err
}

func (l *link) Subscribe(channel string) {
	l.wanted = append(l.wanted, channel)
	l.subscribe(channel)
}

func (l *link) Unsubscribe(channel string) {
	l.wanted = slices.DeleteFunc(l.wanted, func(c string) bool { return c == channel })
	l.sub.send(func() resp.Value {
		l.p.w.subs.remove(channel, l)
		return resp.Value{}
	}, func(resp.Value, error) {})
}

func (l *link) subscribe(channel string) {
	gen := l.sub.gen
	l.sub.send(func() resp.Value {
		if gen == l.sub.gen { // a connection that was cut has no messages
			l.p.w.subs.add(channel, l)
		}
		return resp.Value{}
	}, func(_ resp.Value, err error) {
		if err == nil && slices.Contains(l.wanted, channel) {
			l.p.w.note("%s: subscribed to %s", l.p, channel)
			l.listener.Confirmed(channel)
		}
	})
}

// message is one that Redis has for this proxy.
func (l *link) message(channel string) {
	c := l.sub
	gen := c.gen
	c.back = max(c.back, c.w.now+c.w.latency())
	c.w.in(c.back-c.w.now, l.p, func() {
		if c.gen == gen && slices.Contains(l.wanted, channel) {
			c.w.note("%s: message on %s", l.p, channel)
			l.listener.Published(channel)
		}
	})
}

// cutSubscriptions breaks the subscriber's connection. Redis counts it as a listener for as long as ghost.
func (l *link) cutSubscriptions(down, ghost time.Duration) {
	if !l.sub.up {
		return
	}
	gone := l.p.w.subs.drop(l)
	if ghost > 0 {
		l.p.w.subs.haunt(l.p.w, gone, ghost)
	}
	l.sub.cut(0, 0, down)
}

// subscriptions is who listens, as Redis sees it.
type subscriptions struct {
	links  map[string][]*link
	ghosts map[string]int // connections that were cut silently
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

func (w *world) publish(channel, _ string) int64 {
	links := w.subs.links[channel]
	for _, l := range links {
		l.message(channel)
	}
	return int64(len(links) + w.subs.ghosts[channel])
}

// Server implements redislink.Node.
func (l *link) Server() redislink.Server { return l }

// Confirm implements redislink.Server. Replicas have everything at once, or are away.
func (l *link) Confirm(f func(redislink.Confirmation) error) error { return f(confirmation{l}) }

type confirmation struct{ l *link }

func (c confirmation) Write(
	ctx context.Context, s redislink.Script, keys, args [][]string, n int, limit time.Duration,
) (answers []resp.Value, have int, err error) {
	for i := range keys {
		v, err := c.l.Eval(ctx, s, keys[i], args[i])
		if err != nil {
			return nil, 0, err
		}
		answers = append(answers, v)
	}
	have, err = c.Wait(ctx, n, limit)
	return answers, have, err
}

func (c confirmation) Wait(ctx context.Context, n int, limit time.Duration) (have int, err error) {
	w := c.l.p.w
	v, err := c.l.ask(ctx, func() resp.Value { return resp.Value{Kind: resp.Integer, Int: w.replicas()} })
	if err == nil && int(v.Int) < n {
		w.await(func(wake func()) { w.in(limit, c.l.p, wake) })
		v, err = c.l.ask(ctx, func() resp.Value { return resp.Value{Kind: resp.Integer, Int: w.replicas()} })
	}
	return int(v.Int), err
}

// replicas is how many have what Redis has.
func (w *world) replicas() int64 {
	if w.now < w.replicasAway {
		return 0
	}
	return 2
}
