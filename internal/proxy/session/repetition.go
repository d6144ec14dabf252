package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster a command on a pin is routed anew if the pin's server refuses it for another server's sake, and
// the pin is given up. Requests on lanes are sent again as pause.go says.

// guard implements route.
func (c *shards) guard(r *request, to reply.Handler) reply.Handler {
	s, pin := c.s, c.s.pin
	switch {
	case r.Policy == command.PubSub:
		return c.guardSubscription(r, to)
	case r.Policy == command.Shared && r.Held: // its start has been sent
		return c.guardStreamed(r, to)
	}
	watches := r.Row.Name == "watch"
	if pin.mode != readsReplies || r.Slot < 0 || r.Policy != command.PinOnce && !watches {
		return to
	}
	if pin.tx.watching {
		muted, words := r.Muted, crossSlot
		if watches {
			words = []byte(resp.OK)
		}
		refused := func(at reply.ID, _ topology.Refusal) bool {
			c.watch.broken = true
			if !muted {
				s.out.put(at, words, false)
			}
			return true
		}
		return &reply.Guarded{Session: s, To: to, Slot: r.Slot, Read: topology.ReadRefusal, Refused: refused}
	}
	if watches {
		c.watch = watch{slot: r.Slot}
	}
	r.Keep()
	if r.Asking {
		s.way.send(r, command.Asking, reply.Discard{})
	}
	return c.rerouted(pin, r, topology.ReadWaitingRefusal, to)
}

// rerouted returns the handler of a kept request that is routed anew if the pin's server refuses it, or cannot be
// reached. read reads a refusal. to gets other replies.
func (c *shards) rerouted(
	pin *pinned, r *request, read func(reply []byte) topology.Refusal, to reply.Handler,
) reply.Handler {
	refused := func(_ reply.ID, why topology.Refusal) bool {
		if why.Reason == topology.Vanished {
			c.lookFor(pin, r)
			return true
		}
		return c.elsewhere(pin, r, why)
	}
	unsent := func() bool {
		if pin.tx.watching || pin.keep {
			c.s.abandon() // the state is lost; no command behind this one may run without it
			return true
		}
		return !pin.conn.Hopeless() && c.elsewhere(pin, r, topology.Refusal{})
	}
	return &reply.Guarded{Session: c.s, To: to, Slot: r.Slot, Read: read, Refused: refused, Unsent: unsent}
}

var vanished = resp.AppendRawError(nil, "UNBLOCKED the stream key no longer exists")

// lookFor asks the pin's server for the keys of a command that has waited there for a key which has vanished. If the
// key was moved, the server refuses the question, and the command is routed anew. Otherwise the key was deleted, and
// the client is told.
func (c *shards) lookFor(pin *pinned, r *request) {
	s := c.s
	s.wait = waitReply
	told := &reply.Reply{
		Session: s, Muted: r.Muted, Refusal: func() []byte { return vanished },
		Done: func([]byte) { s.Resume() }, Replace: func([]byte) []byte { return vanished },
	}
	s.way.send(r, existsOf(r), &reply.Guarded{
		Session: s, To: told, Slot: r.Slot, Read: topology.ReadRefusal,
		Refused: func(_ reply.ID, why topology.Refusal) bool { return c.elsewhere(pin, r, why) },
	})
}

// question asks for the keys of a request, which has bytes of its own.
func existsOf(r *request) []byte {
	args := resp.Split(r.Raw, nil)
	words := [][]byte{[]byte("EXISTS")}
	for _, i := range r.Row.Keys.All(args, nil) {
		words = append(words, args[i])
	}
	return resp.AppendCommand(nil, words...)
}

// elsewhere gives up the pin, and has its only command routed anew. false: the command has been refused for too long.
func (c *shards) elsewhere(pin *pinned, r *request, why topology.Refusal) bool {
	if !c.routeAnew(r, pin.conn.At(), why) {
		return false
	}
	// A server that has been demoted closes the connection of its waiters.
	if s := c.s; why.Reason == topology.TryLate && s.pin == pin {
		s.pin = nil
		pin.discard()
		return true
	}
	pin.yield()
	return true
}

// yield returns a pin on which nothing is outstanding and that has no state.
func (p *pinned) yield() {
	s := p.s
	if s.pin == p && !p.keep && !p.spent && p.borrowed == 0 {
		if p.mode == readsFrames {
			s.readReplies()
		}
		s.pin = nil
		s.proxy.Counters.PinReasons.Add(p.reason, -1)
		p.conn.Release()
	}
}

// routeAnew has a command routed anew when the view has been refreshed. false: it has been refused for too long.
func (c *shards) routeAnew(r *request, from upstream.Node, why topology.Refusal) bool {
	s, within := c.s, c.Servers.FailoverWait()
	if why.Reason != topology.NotRefused {
		r.Attempts.Held(within)
	}
	if s.out.Gone() || !r.Attempts.Refused(within) {
		return false
	}
	r.GoTo(c.NoteRefusal(why, from))
	s.repeated, s.wait = r, waitReply
	c.Later(from, r.Attempts.Pause(), s.Resume)
	return true
}
