package pubsub

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A message has come.
type message struct {
	channel channel
	b       []byte
}

// A request is a subscription command of the client. A client chooses how many names it has, so it is carried out part
// by part: each is asked for, confirmed and told before the next one begins.
type request struct {
	at    reply.ID
	verb  string
	kind  kind
	on    bool
	muted bool
	all   [][]byte    // the names behind the present part
	size  int         // bytes of all names
	names [][]byte    // of the present part
	fresh []channel   // that have begun with it
	left  int         // confirmations still to come
	rests bool        // a part has been told, and the next one has not begun: there is no present part
	timer *time.Timer // limits the wait for them
}

// Ask carries out a subscription command, by its name in lower case. No other one is in progress. The reply has a slot
// at; the session is resumed when it is whole. proto is the session's protocol.
func (e *Subscriptions) Ask(verb string, names [][]byte, proto int, at reply.ID, muted bool) {
	k, on, _ := kindOf(verb)
	r := &request{at: at, verb: verb, kind: k, on: on, muted: muted}
	switch {
	case len(names) > 0:
		r.all, r.size = copies(names)
	case !on:
		r.all, r.size = e.names(k)
	}
	e.bytes += r.size
	e.proto, e.request = proto, r
	r.timer = time.AfterFunc(e.limit(), func() { e.session.Do(func() { e.expire(r) }) })
	e.goOn(r)
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
func (e *Subscriptions) names(k kind) (all [][]byte, size int) {
	buf := make([]byte, 0, e.bytes)
	for t := range e.wanted {
		if t.kind == k {
			begin := len(buf)
			buf = append(buf, t.name...)
			all = append(all, buf[begin:])
		}
	}
	return all, len(buf)
}

// goOn begins the next part of a request.
func (e *Subscriptions) goOn(r *request) {
	n := min(len(r.all), maxAsked)
	r.names, r.all, r.rests = r.all[:n:n], r.all[n:], false
	if r.on {
		e.begin(r)
	} else {
		e.end(r)
	}
	e.settle()
}

// limit is the time that a request waits for servers.
func (e *Subscriptions) limit() time.Duration { return max(e.cluster.FailoverWait(), time.Second) }

// begin asks for the new subscriptions of a part.
func (e *Subscriptions) begin(r *request) {
	if e.wanted == nil {
		e.wanted, e.subscribers, e.homeless = map[channel]*subscription{}, map[topology.Node]*subscriber{}, map[channel]*request{}
	}
	if e.stop == nil {
		e.stop = e.cluster.Watch(e.viewChanged)
	}
	for _, name := range r.names {
		t := channel{r.kind, string(name)}
		if e.wanted[t] != nil {
			continue
		}
		e.wanted[t] = &subscription{}
		e.bytes += len(t.name)
		r.fresh = append(r.fresh, t)
	}
	e.place(r.fresh, r)
}

// end asks for the end of the subscriptions of a part.
func (e *Subscriptions) end(r *request) {
	for _, name := range r.names {
		t := channel{r.kind, string(name)}
		delete(e.homeless, t)
		for _, one := range e.subscribers {
			if one.knows(t) {
				one.leave(t, r)
			}
		}
	}
	e.send()
}

// expire ends the wait of a request for servers that do not answer. Channels that are received from one server have
// begun.
func (e *Subscriptions) expire(r *request) {
	switch {
	case e.request != r, r.rests:
	case e.queues():
		r.timer.Reset(e.limit()) // a connection will come, or the reason why not
	case slices.ContainsFunc(r.fresh, func(t channel) bool { return len(e.wanted[t].at) == 0 }):
		e.fail(r, shared.NoUpstream)
	default:
		e.release(r)
		e.settle()
	}
}

// settle tells of the present part of the request in progress if nothing is left to wait for.
func (e *Subscriptions) settle() {
	r := e.request
	if r == nil || r.left > 0 || r.rests {
		return
	}
	var words []byte
	for _, name := range r.names {
		t := channel{r.kind, string(name)}
		sub := e.wanted[t]
		switch {
		case sub == nil:
		case r.on && !sub.told:
			sub.told = true
			e.told[r.kind]++
		case !r.on:
			if sub.told {
				e.told[r.kind]--
			}
			e.forget(t)
		}
		words = appendConfirmation(words, e.proto, r.verb, name, e.count(r.kind))
	}
	if len(r.names) == 0 {
		words = appendConfirmation(words, e.proto, r.verb, nil, e.count(r.kind))
	}
	if len(r.all) == 0 {
		e.answer(r, words)
		return
	}
	e.tell(r, words)
	r.names, r.fresh, r.rests = nil, nil, true
	e.next(func() {
		if e.request == r {
			r.timer.Reset(e.limit())
			e.goOn(r)
		}
	})
}

// count is the number of subscriptions that Redis tells for a kind.
func (e *Subscriptions) count(k kind) int {
	if k == shards {
		return e.told[shards]
	}
	return e.told[channels] + e.told[patterns]
}

// answer gives the end of the reply to a request.
func (e *Subscriptions) answer(r *request, words []byte) {
	r.timer.Stop()
	e.request = nil
	e.bytes -= r.size
	e.tell(r, words)
	e.session.Resume()
	e.session.Answered(r.at, 1)
	e.send()
}

// tell gives a part of the reply to a request, and the messages that have come for channels of which the client knows
// then. Confirmations reach even a client that sees no replies.
func (e *Subscriptions) tell(r *request, words []byte) {
	if !r.muted || words[0] != '-' {
		e.session.Put(r.at, words, false)
	}
	early := e.early
	e.early = nil
	for _, m := range early {
		if e.bytes -= len(m.b); e.wanted[m.channel] != nil {
			e.session.Message(m.b)
		}
	}
}

// fail ends a request with an error, and undoes the subscriptions of its present part. The client has been told of the
// parts before it.
func (e *Subscriptions) fail(r *request, words []byte) {
	for _, t := range r.fresh {
		for _, one := range e.subscribers {
			if one.knows(t) {
				one.leave(t, nil)
			}
		}
		e.forget(t)
	}
	e.answer(r, words)
}

// release lets a request go on without the servers that have not answered.
func (e *Subscriptions) release(r *request) {
	for t := range e.homeless {
		e.homeless[t] = nil
	}
	for _, one := range e.subscribers {
		for i := range one.asks {
			if one.asks[i].r == r {
				one.asks[i].r = nil
			}
		}
		for i := range one.unsent {
			if one.unsent[i].r == r {
				one.unsent[i].r = nil
			}
		}
	}
	r.left = 0
}

// queues reports whether a subscriber waits for a connection.
func (e *Subscriptions) queues() bool {
	for _, one := range e.subscribers {
		if one.conn == nil {
			return true
		}
	}
	return false
}
