package ears

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/replies"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A message has come.
type message struct {
	channel channel
	b       []byte
}

// A request is a subscription command of the client.
type request struct {
	at    replies.ID
	verb  string
	kind  kind
	on    bool
	muted bool
	names [][]byte
	fresh []channel   // that have begun with it
	left  int         // confirmations still to come
	timer *time.Timer // limits the wait for them
}

// Ask carries out a subscription command, by its name in lower case. No other one is in progress. The reply has a slot at; the session is resumed
// when it is whole. proto is the session's protocol.
func (e *Ears) Ask(verb string, names [][]byte, proto int, at replies.ID, muted bool) {
	k, on, _ := kindOf(verb)
	r := &request{at: at, verb: verb, kind: k, on: on, muted: muted}
	for _, name := range names {
		r.names = append(r.names, slices.Clone(name))
	}
	e.proto, e.request = proto, r
	r.timer = time.AfterFunc(e.limit(), func() { e.session.Do(func() { e.expire(r) }) })
	if on {
		e.begin(r)
	} else {
		e.end(r)
	}
	e.settle()
}

// limit is the time that a request waits for servers.
func (e *Ears) limit() time.Duration { return max(e.cluster.FailoverWait(), time.Second) }

// begin asks for new subscriptions.
func (e *Ears) begin(r *request) {
	if e.wanted == nil {
		e.wanted, e.ears, e.homeless = map[channel]*subscription{}, map[topology.Node]*ear{}, map[channel]*request{}
	}
	if e.stop == nil {
		e.stop = e.cluster.Watch(func() { e.session.Do(e.adjust) })
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

// end asks for the end of subscriptions.
func (e *Ears) end(r *request) {
	if len(r.names) == 0 {
		for t := range e.wanted {
			if t.kind == r.kind {
				r.names = append(r.names, []byte(t.name))
			}
		}
		slices.SortFunc(r.names, slices.Compare)
	}
	for _, name := range r.names {
		t := channel{r.kind, string(name)}
		delete(e.homeless, t)
		for _, one := range e.ears {
			if one.knows(t) {
				one.leave(t, r)
			}
		}
	}
	e.send()
}

// expire ends the wait of a request for servers that do not answer. Channels that are received from one server have begun.
func (e *Ears) expire(r *request) {
	switch {
	case e.request != r:
	case e.queues():
		r.timer.Reset(e.limit()) // a connection will come, or the reason why not
	case slices.ContainsFunc(r.fresh, func(t channel) bool { return len(e.wanted[t].at) == 0 }):
		e.fail(r, shared.NoUpstream)
	default:
		e.release(r)
		e.settle()
	}
}

// settle answers the request in progress if nothing is left to wait for.
func (e *Ears) settle() {
	r := e.request
	if r == nil || r.left > 0 {
		return
	}
	e.request = nil
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
	e.answer(r, words)
}

// count is the number of subscriptions that Redis tells for a kind.
func (e *Ears) count(k kind) int {
	if k == shards {
		return e.told[shards]
	}
	return e.told[channels] + e.told[patterns]
}

// answer gives the reply to a request. Confirmations reach even a client that sees no replies.
func (e *Ears) answer(r *request, words []byte) {
	r.timer.Stop()
	if e.request = nil; !r.muted || words[0] != '-' {
		e.session.Put(r.at, words, false)
	}
	e.session.Resume()
	e.session.Answered(r.at, 1)
	early := e.early
	e.early = nil
	for _, m := range early {
		if e.bytes -= len(m.b); e.wanted[m.channel] != nil {
			e.session.Push(m.b)
		}
	}
	e.send()
}

// fail ends a request with an error. What it has begun is undone.
func (e *Ears) fail(r *request, words []byte) {
	for _, t := range r.fresh {
		for _, one := range e.ears {
			if one.knows(t) {
				one.leave(t, nil)
			}
		}
		e.forget(t)
	}
	e.answer(r, words)
}

// release lets a request go on without the servers that have not answered.
func (e *Ears) release(r *request) {
	for t := range e.homeless {
		e.homeless[t] = nil
	}
	for _, one := range e.ears {
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

// queues reports whether an ear waits for a connection.
func (e *Ears) queues() bool {
	for _, one := range e.ears {
		if one.conn == nil {
			return true
		}
	}
	return false
}
