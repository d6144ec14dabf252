package cluster

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster a command on a pin is routed anew if the pin's server refuses it for another server's sake, and
// the pin is given up. Parcels are sent again as pause.go says.

// Guard returns the handler of the reply to a command that is sent on the pin, where to is that of a reply that is no
// refusal for another server's sake.
func (c *Route) Guard(r *command.Request, to reply.Handler) reply.Handler {
	pin, state := c.pin()
	switch {
	case r.Policy == command.PubSub:
		return c.guardSubscription(r, to)
	case r.Policy == command.Shared && r.Held: // its start has been sent
		return c.guardStreamed(r, to)
	}
	watches := r.Row.Name == "watch"
	if !state.Answers || r.Slot < 0 || r.Policy != command.PinOnce && !watches {
		return to
	}
	if state.Watching {
		muted, words := r.Muted, crossSlot
		if watches {
			words = []byte(resp.OK)
		}
		refused := func(at reply.ID, _ topology.Refusal) bool {
			c.watch.broken = true
			if !muted {
				c.Host.Put(at, words, false)
			}
			return true
		}
		return &guarded{host: c.Host, to: to, slot: r.Slot, refused: refused}
	}
	if watches {
		c.watch = watch{slot: r.Slot}
	}
	c.keep(r)
	if r.Asking {
		c.Send(r, command.Asking, reply.Discard{})
	}
	return c.rerouted(pin, r, to)
}

// keep holds a request that may be routed anew. Nothing else is on its way on the pin.
func (c *Route) keep(r *command.Request) {
	if r.Held { // it is being routed anew
		c.attempts.Sent()
		return
	}
	c.attempts = topology.Attempts{}
	r.Keep()
}

// rerouted returns the handler of a kept request that is routed anew if the pin's server refuses it, or cannot be
// reached. to gets other replies.
func (c *Route) rerouted(pin Pin, r *command.Request, to reply.Handler) reply.Handler {
	refused := func(_ reply.ID, why topology.Refusal) bool {
		if why.Reason == topology.Vanished {
			c.lookFor(pin, r)
			return true
		}
		return c.elsewhere(pin, r, why)
	}
	unsent := func() bool {
		if state := pin.State(); state.Watching || state.Kept {
			c.Host.Abandon() // the state is lost; no command behind this one may run without it
			return true
		}
		return !pin.Hopeless() && c.elsewhere(pin, r, topology.Refusal{})
	}
	return &guarded{host: c.Host, to: to, slot: r.Slot, refused: refused, unsent: unsent}
}

var vanished = resp.AppendRawError(nil, "UNBLOCKED the stream key no longer exists")

// lookFor asks the pin's server for the keys of a command that has waited there for a key which has vanished. If the
// key was moved, the server refuses the question, and the command is routed anew. Otherwise the key was deleted, and
// the client is told.
func (c *Route) lookFor(pin Pin, r *command.Request) {
	c.Host.AwaitReply()
	told := &reply.Reply{
		Session: c.Host, Muted: r.Muted, Refusal: func() []byte { return vanished },
		Done: func([]byte) { c.Host.Resume() }, Replace: func([]byte) []byte { return vanished },
	}
	c.Send(r, existsOf(r), &guarded{
		host: c.Host, to: told, slot: r.Slot,
		refused: func(_ reply.ID, why topology.Refusal) bool { return c.elsewhere(pin, r, why) },
	})
}

// existsOf asks for the keys of a request, which has bytes of its own.
func existsOf(r *command.Request) []byte {
	args := resp.Split(r.Raw, nil)
	words := [][]byte{[]byte("EXISTS")}
	for _, i := range r.Row.Keys.All(args, nil) {
		words = append(words, args[i])
	}
	return resp.AppendCommand(nil, words...)
}

// elsewhere gives up the pin, and has its only command routed anew. false: the command has been refused for too long.
func (c *Route) elsewhere(pin Pin, r *command.Request, why topology.Refusal) bool {
	if !c.routeAnew(r, pin.At(), why) {
		return false
	}
	pin.Leave(why.Reason == topology.TryLate) // a server that has been demoted closes the connection of its waiters
	return true
}

// routeAnew has a command routed anew when the view has been refreshed. false: it has been refused for too long.
func (c *Route) routeAnew(r *command.Request, from upstream.Node, why topology.Refusal) bool {
	within := c.Servers.FailoverWait()
	if why.Reason != topology.NotRefused {
		c.attempts.Held(within)
	}
	if c.Host.Gone() || !c.attempts.Refused(within) {
		return false
	}
	r.GoTo(c.NoteRefusal(why, from))
	c.Host.Repeat(r)
	c.Later(from, c.attempts.Pause(), c.Host.Resume)
	return true
}

// Stream finds the server of a large command, of which the start and these arguments have come. false: it must be held
// whole, or the session waits. If there is room it is held whole: then it can be sent again when its slot moves at that
// moment. It must be held whole also if its key is not known yet, or if the session has a connection for a transaction.
func (c *Route) Stream(r *command.Request, size, room int) bool {
	if size < room {
		return false
	}
	key, pin := r.Row.Keys.Fixed(), c.Host.Pin()
	if key == 0 || len(r.Args) <= key || c.queued != nil || pin != nil && !pin.State().Fresh || !c.Host.AwaitQuiet() {
		return false
	}
	c.Adopt()
	r.Look()
	r.At = c.OwnerOf(r.Slot)
	return true
}

// guardStreamed is Guard for such a command. Bytes that have been streamed are gone, so it is not sent again.
func (c *Route) guardStreamed(r *command.Request, to reply.Handler) reply.Handler {
	muted, pin := r.Muted, c.Host.Pin()
	refused := func(at reply.ID, why topology.Refusal) bool {
		if c.NoteRefusal(why, pin.At()); why.Reason == topology.TryLate {
			return false
		}
		if !muted {
			c.Host.Put(at, movedMeanwhile, false)
		}
		return true
	}
	return &guarded{host: c.Host, to: to, slot: r.Slot, refused: refused}
}

var movedMeanwhile = resp.AppendRawError(nil, "TRYAGAIN the slot of the key moves or has moved, nothing was done")
