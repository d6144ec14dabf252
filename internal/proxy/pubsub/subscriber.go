package pubsub

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A subscriber is a connection to one server, and the channels that are received there.
type subscriber struct {
	of       *Subscriptions
	at       topology.Node
	conn     Conn // nil: it waits for one
	withdraw func() bool
	asked    map[channel]bool // true: confirmed; false: asked for
	asks     []ask            // sent and not answered, in order
	unsent   []ask
	holding  int // bytes of a frame that is not whole
	closed   bool
}

// An ask is a command to the server.
type ask struct {
	kind     kind
	on       bool
	channels []channel
	left     int      // confirmations still to come
	r        *request // that it is part of; nil: none
}

// maxAsked bounds the channels of one command.
const maxAsked = 1000

// knows reports whether a channel has been asked for.
func (o *subscriber) knows(t channel) bool {
	_, ok := o.asked[t]
	return ok
}

// join asks for a channel.
func (o *subscriber) join(t channel, r *request) {
	o.asked[t] = false
	o.add(t, true, r)
}

// leave asks for the end of a channel.
func (o *subscriber) leave(t channel, r *request) {
	delete(o.asked, t)
	o.of.without(t, o)
	o.add(t, false, r)
}

// add puts a channel into the last command that has not been sent, if it fits: a server wants the shard channels of one
// command in one slot.
func (o *subscriber) add(t channel, on bool, r *request) {
	if r != nil {
		r.left++
	}
	if last := len(o.unsent) - 1; last >= 0 {
		a := &o.unsent[last]
		same := a.kind == t.kind && a.on == on && a.r == r && a.channels[0].slot() == t.slot()
		if same && len(a.channels) < maxAsked {
			a.channels = append(a.channels, t)
			a.left++
			return
		}
	}
	o.unsent = append(o.unsent, ask{kind: t.kind, on: on, channels: []channel{t}, left: 1, r: r})
}

// open asks for the connection.
func (o *subscriber) open() {
	s := o.of.session
	conn, withdraw := s.Open(o.at, func(c Conn, refusal []byte) {
		if !s.Do(func() { o.opened(c, refusal) }) && c != nil {
			c.Discard()
		}
	})
	if o.withdraw = withdraw; conn != nil {
		o.use(conn)
	}
}

// opened takes the connection, or the reason why there is none.
func (o *subscriber) opened(c Conn, refusal []byte) {
	o.withdraw = nil
	switch {
	case o.closed && c != nil:
		c.Discard()
	case o.closed:
	case c == nil:
		o.refused(refusal)
	default:
		o.use(c)
		o.send()
	}
}

func (o *subscriber) use(c Conn) {
	o.conn = c
	c.Observe(o)
	c.ReadFrames()
}

// send sends the commands that wait.
func (o *subscriber) send() {
	if o.conn == nil || len(o.unsent) == 0 {
		return
	}
	list := o.unsent
	o.unsent = nil
	o.asks = append(o.asks, list...)
	var raw []byte
	for _, a := range list {
		words := make([]string, 1, 1+len(a.channels))
		if words[0] = verbs[a.kind].off; a.on {
			words[0] = verbs[a.kind].on
		}
		for _, t := range a.channels {
			words = append(words, t.name)
		}
		raw = resp.AppendCommand(raw, words...)
	}
	if o.conn.Append(raw, nil, 0, 0) != nil { // it ended before it was observed
		time.AfterFunc(0, func() { o.Closed(nil) })
		return
	}
	o.conn.Send()
}

// close gives the connection up. No request waits for it.
func (o *subscriber) close() {
	o.closed = true
	switch {
	case o.conn != nil:
		o.conn.Discard()
	case o.withdraw != nil:
		o.withdraw()
	}
}

// Push implements stream.Observer. Flush follows: the messages that came in together go out together.
func (o *subscriber) Push(b []byte, kind resp.Kind) {
	o.of.session.Enter(func() { o.frame(b, kind) })
}

// frame handles one frame of the server.
func (o *subscriber) frame(b []byte, kind resp.Kind) {
	o.holding = 0
	if o.closed {
		return
	}
	if resp.IsError(b) {
		o.failed(b)
		return
	}
	verb, name, source := words(b)
	k, on, isConfirmation := kindOf(string(verb))
	if isConfirmation {
		o.confirmed(channel{k, string(name)}, on)
		return
	}
	for k := range kinds {
		if string(verb) == verbs[k].message {
			o.of.received(o, channel{k, string(name)}, source, b)
			return
		}
	}
	if kind == resp.Push {
		o.of.session.Message(b)
	}
}

// confirmed takes a confirmation. One that was not asked for says that a slot has moved away.
func (o *subscriber) confirmed(t channel, on bool) {
	e := o.of
	if len(o.asks) == 0 || o.asks[0].kind != t.kind || o.asks[0].on != on {
		if _, known := o.asked[t]; known && !on {
			delete(o.asked, t)
			e.without(t, o)
			e.lost(t, nil, o.at)
		}
		return
	}
	a := &o.asks[0]
	if a.left--; a.r != nil {
		a.r.left--
	}
	if _, still := o.asked[t]; on && still {
		o.asked[t] = true
		e.hears(t, o)
	}
	if a.left == 0 {
		o.asks = o.asks[1:]
	}
	e.calm()
	e.settle()
	e.send()
}

// failed handles an error, which is the answer to the first command.
func (o *subscriber) failed(words []byte) {
	if len(o.asks) == 0 {
		return
	}
	a := o.asks[0]
	o.asks = o.asks[1:]
	o.drop(a)
	e := o.of
	switch why := topology.ReadRefusal(words); {
	case !a.on:
		e.settle()
	case why.Reason != topology.NotRefused:
		e.cluster.Refused(why.Reason)
		for _, t := range a.channels {
			e.lost(t, a.r, o.at)
		}
	case a.r != nil && a.r == e.request:
		e.fail(a.r, words)
	default:
		e.session.CutOff() // its user has lost the right
	}
	e.send()
}

// drop takes a command back that is not answered any more. Its channels are received no more here.
func (o *subscriber) drop(a ask) {
	if a.r != nil {
		a.r.left -= a.left
	}
	if !a.on {
		return
	}
	for _, t := range a.channels {
		if !o.asked[t] {
			delete(o.asked, t)
		}
	}
}

// refused handles the reason why there is no connection.
func (o *subscriber) refused(words []byte) {
	e := o.of
	o.closed = true
	delete(e.subscribers, o.at)
	for _, a := range o.unsent {
		o.drop(a)
	}
	if e.request != nil && e.request.on {
		e.fail(e.request, words)
	}
	for _, a := range o.unsent {
		for _, t := range a.channels {
			if a.on {
				e.lost(t, nil, o.at)
			}
		}
	}
	e.settle()
}

// Holding implements stream.Observer.
func (o *subscriber) Holding(n int) { o.of.session.Enter(func() { o.holding = n }) }

// Flush implements stream.Observer.
func (o *subscriber) Flush() { o.of.session.Flush() }

// Closed implements stream.Observer.
func (o *subscriber) Closed(error) { o.of.session.Do(o.gone) }

// gone finds another server for the channels of a connection that has ended.
func (o *subscriber) gone() {
	e := o.of
	if o.closed {
		return
	}
	o.closed = true
	if e.subscribers[o.at] == o {
		delete(e.subscribers, o.at)
	}
	refusal := o.conn.Refusal()
	if o.conn.Rejected() {
		refusal = nil
	}
	rejected := o.conn.Rejected() || refusal != nil && string(refusal) != string(shared.NoUpstream) && !o.conn.Connected()
	o.conn.Discard()
	var lost []channel
	waited := map[channel]*request{}
	for t, confirmed := range o.asked {
		if confirmed {
			lost = append(lost, t)
		}
	}
	for _, a := range append(o.asks, o.unsent...) {
		o.drop(a)
		switch {
		case !a.on:
		case a.r == nil:
			lost = append(lost, a.channels...)
		default:
			for _, t := range a.channels {
				waited[t] = a.r
			}
		}
	}
	if rejected {
		if r := e.request; r != nil && r.on && refusal != nil {
			e.fail(r, refusal)
		} else {
			e.session.CutOff()
			return
		}
	}
	for t, r := range waited {
		e.lost(t, r, o.at)
	}
	e.inParts(lost, func(part []channel) {
		for _, t := range part {
			e.without(t, o)
			e.lost(t, nil, o.at)
		}
	}, e.settle)
}

var _ stream.Observer = (*subscriber)(nil)
