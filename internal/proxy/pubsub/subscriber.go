package pubsub

import (
	"slices"
	"time"

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
	asked    map[channel]bool // for; true: the server has confirmed it
	asks     []*ask           // sent and not answered, in order
	unsent   []*ask
	holding  int  // bytes of a frame that is not whole
	spent    bool // the connection is of no use for others
	closed   bool
}

// An ask is a command to the server.
type ask struct {
	kind     Kind
	on       bool
	channels []channel
	left     int      // confirmations still to come
	r        *request // that it is part of; nil: none
}

// maxAsked bounds the channels of one command.
const maxAsked = 1000

// knows reports whether a channel has been asked for.
func (one *subscriber) knows(ch channel) bool {
	_, ok := one.asked[ch]
	return ok
}

// join asks for a channel.
func (one *subscriber) join(ch channel, r *request) {
	one.asked[ch] = false
	one.spent = one.spent || len(one.asked) > Few
	one.add(ch, true, r)
}

// leave asks for the end of a channel.
func (one *subscriber) leave(ch channel, r *request) {
	delete(one.asked, ch)
	one.of.without(ch, one)
	one.add(ch, false, r)
}

// add puts a channel into the last command that has not been sent, if it fits: a server wants the shard channels of one
// command in one slot.
func (one *subscriber) add(ch channel, on bool, r *request) {
	if r != nil {
		r.left++
	}
	if last := len(one.unsent) - 1; last >= 0 {
		a := one.unsent[last]
		same := a.kind == ch.kind && a.on == on && a.r == r && a.channels[0].slot() == ch.slot()
		if same && len(a.channels) < maxAsked {
			a.channels = append(a.channels, ch)
			a.left++
			return
		}
	}
	one.unsent = append(one.unsent, &ask{kind: ch.kind, on: on, channels: []channel{ch}, left: 1, r: r})
}

// open asks for the connection.
func (one *subscriber) open() {
	session := one.of.session
	conn, withdraw := session.Open(one.at, func(c Conn, refusal []byte) {
		if !session.Do(func() { one.opened(c, refusal) }) && c != nil {
			c.Discard()
		}
	})
	if one.withdraw = withdraw; conn != nil {
		one.use(conn)
	}
}

// opened takes the connection, or the reason why there is none.
func (one *subscriber) opened(c Conn, refusal []byte) {
	one.withdraw = nil
	switch {
	case one.closed && c != nil:
		c.Discard()
	case one.closed:
	case c == nil:
		one.refused(refusal)
	default:
		one.use(c)
		one.send()
	}
}

func (one *subscriber) use(c Conn) {
	one.conn = c
	c.Observe(one)
	c.ReadFrames()
}

// send sends the commands that wait.
func (one *subscriber) send() {
	if one.conn == nil || len(one.unsent) == 0 {
		return
	}
	list := one.unsent
	one.unsent = nil
	one.asks = append(one.asks, list...)
	var raw []byte
	for _, a := range list {
		words := make([]string, 1, 1+len(a.channels))
		if words[0] = verbs[a.kind].off; a.on {
			words[0] = verbs[a.kind].on
		}
		for _, ch := range a.channels {
			words = append(words, ch.name)
		}
		raw = resp.AppendCommand(raw, words...)
	}
	if one.conn.Append(raw, nil, 0, 0) != nil { // it ended before it was observed
		time.AfterFunc(0, func() { one.Closed(nil) })
		return
	}
	one.conn.Send()
}

// close gives the connection up. No request waits for it.
func (one *subscriber) close() {
	one.closed = true
	switch {
	case one.conn != nil:
		one.conn.Discard()
	case one.withdraw != nil:
		one.withdraw()
	}
}

// giveBack ends a subscriber without channels. Its connection may serve others.
func (one *subscriber) giveBack() {
	if one.conn == nil || one.spent {
		one.close()
		return
	}
	one.closed = true
	one.conn.ReadReplies()
	one.conn.Release()
}

// Push implements stream.Observer. Flush follows: the messages that came in together go out together.
func (one *subscriber) Push(b []byte, kind resp.Kind) {
	one.of.session.Enter(func() { one.frame(b, kind) })
}

// frame handles one frame of the server.
func (one *subscriber) frame(b []byte, kind resp.Kind) {
	one.holding = 0
	if one.closed {
		return
	}
	if resp.IsError(b) {
		one.failed(b)
		return
	}
	verb, name, source := ReadFrame(b)
	if k, on, ok := KindOf(string(verb)); ok {
		one.confirmed(channel{k, string(name)}, on)
		return
	}
	if k, ok := kindOfMessage(string(verb)); ok {
		one.of.received(one, channel{k, string(name)}, source, b)
		return
	}
	if kind == resp.Push {
		one.of.session.Message(b)
	}
}

// confirmed takes a confirmation. One that was not asked for says that a slot has moved away.
func (one *subscriber) confirmed(ch channel, on bool) {
	s := one.of
	if len(one.asks) == 0 || one.asks[0].kind != ch.kind || one.asks[0].on != on {
		if _, known := one.asked[ch]; known && !on {
			delete(one.asked, ch)
			s.without(ch, one)
			s.lost(ch, nil, one.at)
		}
		return
	}
	a := one.asks[0]
	if a.left--; a.r != nil {
		a.r.left--
	}
	if _, still := one.asked[ch]; on && still {
		one.asked[ch] = true
		s.hears(ch, one)
	}
	if a.left == 0 {
		one.asks = one.asks[1:]
	}
	s.calm()
	s.settle()
	s.sendAndClose()
}

// failed handles an error, which is the answer to the first command.
func (one *subscriber) failed(words []byte) {
	if len(one.asks) == 0 {
		return
	}
	a := one.asks[0]
	one.asks = one.asks[1:]
	one.drop(a)
	s := one.of
	switch why := topology.ReadRefusal(words); {
	case !a.on:
		one.spent = true // it has the subscriptions still
		s.settle()
	case why.Reason != topology.NotRefused:
		s.cluster.Refused(why.Reason)
		for _, ch := range a.channels {
			s.lost(ch, a.r, one.at)
		}
	case a.r != nil && a.r == s.request:
		s.fail(a.r, words)
	default:
		s.session.CutOff() // its user has lost the right
	}
	s.sendAndClose()
}

// drop takes a command back that is not answered any more. Its channels are received no more here.
func (one *subscriber) drop(a *ask) {
	if a.r != nil {
		a.r.left -= a.left
	}
	if !a.on {
		return
	}
	for _, ch := range a.channels {
		if !one.asked[ch] {
			delete(one.asked, ch)
		}
	}
}

// refused handles the reason why there is no connection.
func (one *subscriber) refused(words []byte) {
	s := one.of
	one.closed = true
	delete(s.subscribers, one.at)
	for _, a := range one.unsent {
		one.drop(a)
	}
	if s.request != nil && s.request.on {
		s.fail(s.request, words)
	}
	for _, a := range one.unsent {
		for _, ch := range a.channels {
			if a.on {
				s.lost(ch, nil, one.at)
			}
		}
	}
	s.settle()
}

// Holding implements stream.Observer.
func (one *subscriber) Holding(n int) { one.of.session.Enter(func() { one.holding = n }) }

// Flush implements stream.Observer.
func (one *subscriber) Flush() { one.of.session.Flush() }

// Waits implements stream.Observer: another server may have the channels by then.
func (one *subscriber) Waits() bool { return false }

// Closed implements stream.Observer.
func (one *subscriber) Closed(error) { one.of.session.Do(one.gone) }

// gone finds another server for the channels of a connection that has ended.
func (one *subscriber) gone() {
	s := one.of
	if one.closed {
		return
	}
	one.closed = true
	if s.subscribers[one.at] == one {
		delete(s.subscribers, one.at)
	}
	refusal, rejected := one.rejection()
	one.conn.Discard()
	var lost []channel
	waited := map[channel]*request{}
	for ch, confirmed := range one.asked {
		if confirmed {
			lost = append(lost, ch)
		}
	}
	for _, a := range slices.Concat(one.asks, one.unsent) {
		one.drop(a)
		switch {
		case !a.on:
		case a.r == nil:
			lost = append(lost, a.channels...)
		default:
			for _, ch := range a.channels {
				waited[ch] = a.r
			}
		}
	}
	if rejected {
		if r := s.request; r != nil && r.on && refusal != nil {
			s.fail(r, refusal)
		} else {
			s.session.CutOff()
			return
		}
	}
	for ch, r := range waited {
		s.lost(ch, r, one.at)
	}
	s.inParts(lost, func(part []channel) {
		for _, ch := range part {
			s.without(ch, one)
			s.lost(ch, nil, one.at)
		}
	}, s.settle)
}

// rejection reports whether the server has rejected the connection or its user, and its words; nil: it has none.
func (one *subscriber) rejection() (words []byte, rejected bool) {
	if one.conn.Rejected() {
		return nil, true
	}
	words = one.conn.Refusal()
	return words, words != nil && !one.conn.Connected()
}

var _ stream.Observer = (*subscriber)(nil)
