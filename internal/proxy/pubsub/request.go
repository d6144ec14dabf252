package pubsub

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A message is one that came before the client was told of its channel.
type message struct {
	channel channel
	b       []byte
}

// A request is a subscription command of the client. A client chooses how many names it has, so it is carried out part
// by part: each is asked for, confirmed and told before the next one begins.
type request struct {
	at    reply.ID
	verb  string
	kind  Kind
	on    bool
	muted bool
	all   [][]byte    // the names behind the present part
	size  int         // bytes of all names
	names [][]byte    // of the present part
	fresh []channel   // that have begun with it
	left  int         // confirmations still to come
	rests bool        // between two parts: there is no present one
	timer *time.Timer // limits the wait for them
}

// Ask carries out a subscription command, by its name in lower case. No other one is in progress. The reply has a slot
// at; the session is resumed when it is whole. proto is the session's protocol.
func (s *Subscriptions) Ask(verb string, names [][]byte, proto int, at reply.ID, muted bool) {
	k, on, _ := KindOf(verb)
	r := &request{at: at, verb: verb, kind: k, on: on, muted: muted}
	switch {
	case len(names) > 0:
		r.all, r.size = copies(names)
	case !on:
		r.all, r.size = s.names(k)
	}
	s.bytes += r.size
	s.proto, s.request = proto, r
	r.timer = time.AfterFunc(s.limit(), func() { s.session.Do(func() { s.expire(r) }) })
	s.goOn(r)
}

// copies are copies of names, and their size.
func copies(names [][]byte) (all [][]byte, size int) {
	for _, name := range names {
		size += len(name)
	}
	all = make([][]byte, len(names))
	buf := make([]byte, 0, size)
	for i, name := range names {
		begin := len(buf)
		buf = append(buf, name...)
		all[i] = buf[begin:]
	}
	return all, size
}

// names are those of all subscriptions of a kind, and their size.
func (s *Subscriptions) names(k Kind) (all [][]byte, size int) {
	buf := make([]byte, 0, s.bytes)
	for ch := range s.wanted {
		if ch.kind == k {
			begin := len(buf)
			buf = append(buf, ch.name...)
			all = append(all, buf[begin:])
		}
	}
	return all, len(buf)
}

// goOn begins the next part of a request.
func (s *Subscriptions) goOn(r *request) {
	n := min(len(r.all), maxAsked)
	r.names, r.all, r.rests = r.all[:n:n], r.all[n:], false
	if r.on {
		s.begin(r)
	} else {
		s.end(r)
	}
	s.settle()
}

// limit is the time that a request waits for servers.
func (s *Subscriptions) limit() time.Duration { return max(s.cluster.FailoverWait(), time.Second) }

// begin asks for the new subscriptions of a part.
func (s *Subscriptions) begin(r *request) {
	if s.wanted == nil {
		s.wanted = map[channel]*subscription{}
		s.subscribers = map[topology.Node]*subscriber{}
		s.homeless = map[channel]*request{}
	}
	if s.stop == nil {
		s.stop = s.cluster.Watch(s.viewChanged)
	}
	for _, name := range r.names {
		ch := channel{r.kind, string(name)}
		if s.wanted[ch] != nil {
			continue
		}
		s.wanted[ch] = &subscription{}
		s.bytes += len(ch.name)
		r.fresh = append(r.fresh, ch)
	}
	s.place(r.fresh, r)
}

// end asks for the end of the subscriptions of a part.
func (s *Subscriptions) end(r *request) {
	for _, name := range r.names {
		ch := channel{r.kind, string(name)}
		delete(s.homeless, ch)
		for _, one := range s.subscribers {
			if one.knows(ch) {
				one.leave(ch, r)
			}
		}
	}
	s.sendAndClose()
}

// expire ends the wait of a request for servers that do not answer. Channels that are received from one server have
// begun.
func (s *Subscriptions) expire(r *request) {
	switch {
	case s.request != r, r.rests:
	case s.queues():
		r.timer.Reset(s.limit()) // a connection will come, or the reason why not
	case slices.ContainsFunc(r.fresh, func(ch channel) bool { return len(s.wanted[ch].at) == 0 }):
		s.fail(r, reply.ClusterDown)
	default:
		s.release(r)
		s.settle()
	}
}

// settle tells of the present part of the request in progress if nothing is left to wait for.
func (s *Subscriptions) settle() {
	r := s.request
	if r == nil || r.left > 0 || r.rests {
		return
	}
	var words []byte
	for _, name := range r.names {
		ch := channel{r.kind, string(name)}
		sub := s.wanted[ch]
		switch {
		case sub == nil:
		case r.on && !sub.told:
			sub.told = true
			s.told[r.kind]++
		case !r.on:
			if sub.told {
				s.told[r.kind]--
			}
			s.forget(ch)
		}
		words = appendConfirmation(words, s.proto, r.verb, name, s.count(r.kind))
	}
	if len(r.names) == 0 {
		words = appendConfirmation(words, s.proto, r.verb, nil, s.count(r.kind))
	}
	if len(r.all) == 0 {
		s.answer(r, words)
		return
	}
	s.tell(r, words)
	r.names, r.fresh, r.rests = nil, nil, true
	s.next(func() {
		if s.request == r {
			r.timer.Reset(s.limit())
			s.goOn(r)
		}
	})
}

// count is the number of subscriptions that Redis tells for a kind.
func (s *Subscriptions) count(k Kind) int {
	if k == Shards {
		return s.told[Shards]
	}
	return s.told[Channels] + s.told[Patterns]
}

// answer gives the end of the reply to a request.
func (s *Subscriptions) answer(r *request, words []byte) {
	r.timer.Stop()
	s.request = nil
	s.bytes -= r.size
	s.tell(r, words)
	s.session.Resume()
	s.session.Answered(r.at, 1)
	s.sendAndClose()
}

// tell gives a part of the reply to a request, and the messages that have come for channels of which the client knows
// then. Confirmations reach even a client that sees no replies.
func (s *Subscriptions) tell(r *request, words []byte) {
	if !r.muted || words[0] != '-' {
		s.session.Put(r.at, words, false)
	}
	early := s.early
	s.early = nil
	for _, m := range early {
		if s.bytes -= len(m.b); s.wanted[m.channel] != nil {
			s.session.Message(m.b)
		}
	}
}

// fail ends a request with an error, and undoes the subscriptions of its present part. The client has been told of the
// parts before it.
func (s *Subscriptions) fail(r *request, words []byte) {
	for _, ch := range r.fresh {
		for _, one := range s.subscribers {
			if one.knows(ch) {
				one.leave(ch, nil)
			}
		}
		s.forget(ch)
	}
	s.answer(r, words)
}

// release lets a request go on without the servers that have not answered.
func (s *Subscriptions) release(r *request) {
	for ch := range s.homeless {
		s.homeless[ch] = nil
	}
	for _, one := range s.subscribers {
		for _, a := range slices.Concat(one.asks, one.unsent) {
			if a.r == r {
				a.r = nil
			}
		}
	}
	r.left = 0
}

// queues reports whether a subscriber waits for a connection.
func (s *Subscriptions) queues() bool {
	for _, one := range s.subscribers {
		if one.conn == nil {
			return true
		}
	}
	return false
}
