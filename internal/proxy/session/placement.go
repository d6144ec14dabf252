package session

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/errands"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In a cluster a transaction belongs to the server of its keys, but MULTI names none. It begins at some server. At the first key of another
// server it is discarded there, and its commands are queued again at that other server. The same happens if the slot has moved when the client says
// EXEC: a server that refuses to queue a command carries out none of the transaction.

// placement is what a pin remembers of its transaction.
type placement struct {
	home    int // slot of the first key; -1: there was none
	refused topology.Refusal
	ends    bool // EXEC or DISCARD has been sent
}

// watch is what a pin remembers of its WATCH.
type watch struct {
	slot   int  // of the watched keys; a WATCH of another slot is refused
	broken bool // the server no longer has them all, so it cannot tell whether they change
}

// replay is a transaction that goes on at another server.
type replay struct {
	TxState // of the connection that it has left
	placement
	asking   upstream.Node // the server that has the keys already; AnyNode: the owner of the slot
	begun    bool          // MULTI has been sent
	answer   []byte        // the reply to it; nil: it could not be sent
	sent     int           // commands of those that are kept, MULTI included
	attempts errands.Attempts
}

// begin notes that MULTI is about to be sent. In an open transaction Redis refuses it, and the transaction goes on.
func (p *pinned) begin(raw []byte) {
	if p.InTx {
		p.Keep(raw)
		return
	}
	p.placement = placement{home: -1}
	p.Opens(raw, p.s.Clustered())
}

// opens returns the function that takes the reply to the MULTI that is sent next.
func (p *pinned) opens() func(reply []byte) {
	p.Opening++
	base := p.Queued
	return func(reply []byte) {
		if p.Opening--; resp.IsOK(reply) {
			p.Opened(base)
		}
	}
}

// routeAt looks whether the pin's server is the one for a command. handled is false if it is. Else done is false if the command must wait.
func (s *Session) routeAt(row *command.Row, p command.Policy, raw []byte) (done, handled bool) {
	pin := s.pin
	if s.replay != nil {
		return s.resumeTx(row, p, raw), true
	}
	asks := s.Asks && pin.fresh // it has been routed to this pin so
	s.Look(row, s.args)
	s.Asks = asks
	s.Wrote(pin.conn.At())
	if (pin.ends || pin.Opening > 0) && !s.awaitQuiet() { // a MULTI that cannot be sent here begins the transaction elsewhere
		return false, true
	}
	pin.ends = row.Name == "exec" || row.Name == "discard"
	if !pin.InTx {
		if !s.awaitQuiet() {
			return false, true
		}
		s.Adopt()
		if !pin.fresh {
			if handled, done := s.whole(row, p, raw); handled {
				return done, true
			}
		}
		switch {
		case p == command.Shared && s.Slot >= 0 && (pin.Watching || !pin.fresh && s.Owner(s.Slot) != pin.conn.At()): // it may have moved since the WATCH
			s.Target = s.Owner(s.Slot)
			s.Send(raw, s.handler())
			return true, true
		case !pin.Watching || s.Slot < 0:
		case row.Name == "watch" && s.Slot != pin.watch.slot, row.Name != "watch" && s.Owner(s.Slot) != pin.conn.At():
			return s.answer(shared.CrossSlot), true
		}
		return false, false
	}
	if p == command.Transaction && row.Name != "watch" {
		return false, false
	}
	absent, refusal := s.absent(row), s.impossible(row, p, raw)
	if refusal == nil && scatter.NeedsAll(row.Name, command.Keyword(s.args, 1)) {
		refusal = allInTx
	}
	if absent || refusal != nil || s.Slot >= 0 && pin.home < 0 {
		if !s.awaitQuiet() {
			return false, true
		}
	}
	switch {
	case absent: // a command that answers for any user is queued in its place
		pin.Queue(Step{Rewrite: func([]byte) []byte { return noCluster }}, command.Hello)
		s.forward(command.Hello, s.handler(), 1)
		return true, true
	case refusal != nil:
		s.poison(refusal)
		return true, true
	case s.Slot >= 0 && pin.home < 0:
		at := s.Owner(s.Slot)
		switch elsewhere := at != pin.conn.At() && at != upstream.AnyNode; {
		case pin.Watching && s.Slot != pin.watch.slot:
			s.poison(shared.CrossSlot)
			return true, true
		case elsewhere && !pin.Watching: // a server that has lost watched keys refuses the command
			pin.home = s.Slot
			pin.moveTx(upstream.AnyNode)
			return false, true
		}
		pin.home = s.Slot
	}
	if s.Slot >= 0 && s.Slot != pin.home {
		s.poison(shared.CrossSlot)
		return true, true
	}
	return false, false
}

// moveTx discards the transaction here, and has it begin anew at another server.
func (p *pinned) moveTx(asking upstream.Node) {
	s, pin := p.s, p
	s.replay = &replay{TxState: pin.TxState, placement: pin.placement, asking: asking}
	pin.placement = placement{home: -1}
	s.forward(command.Discard, &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		pin.End()
		pin.spent = pin.spent || !resp.IsOK(reply) // the transaction is still open, if the user may not end it
	}}, 1)
	if s.wait == waitNone {
		s.wait = waitQuiet
	}
}

// resumeTx goes on with a transaction at another server, and then with the command behind it. false: the session waits.
func (s *Session) resumeTx(row *command.Row, p command.Policy, raw []byte) bool {
	r := s.replay
	if !s.awaitQuiet() {
		return false
	}
	switch {
	case r.begun && r.answer == nil:
		if pin := s.pin; pin != nil {
			s.pin = nil
			pin.discard()
		}
		if r.begun = false; r.attempts.Refused(s.Wait()) {
			s.wait = waitReply
			s.Later(upstream.AnyNode, r.attempts.Pause(), s.Resume)
			return false
		}
		return r.end(s, row, shared.NoUpstream)
	case r.begun && !resp.IsOK(r.answer): // the commands behind it would run one by one
		return r.end(s, row, r.answer)
	case r.begun && r.sent == len(r.Kept):
		s.replay = nil
		s.pin.Resume(r.TxState)
		s.pin.placement = r.placement
		return s.routePinned(row, p, raw)
	case r.begun:
		r.send(s)
	default:
		if err := s.pinTimedOut; s.pin == nil && err != nil {
			s.pinTimedOut = nil
			return r.end(s, row, s.proxy.NoPinFree(err, s.Addr))
		}
		if s.pin == nil && !r.takePin(s) {
			return false
		}
		r.begin(s)
	}
	return s.awaitQuiet() && !s.out.Gone() && s.resumeTx(row, p, raw) // the connection is down already, if nothing is outstanding
}

// takePin takes a connection to the server at which the transaction goes on. false: the session waits for one.
func (r *replay) takePin(s *Session) bool {
	s.Adopt()
	if s.Target = s.Owner(r.home); r.asking != upstream.AnyNode {
		s.Target = r.asking
	}
	s.hasty = true
	return s.takePin("multi", command.Transaction)
}

// begin sends MULTI.
func (r *replay) begin(s *Session) {
	s.pin.fresh, r.begun, r.answer, r.sent = false, true, nil, 1
	if r.asking != upstream.AnyNode {
		s.forward(command.Asking, reply.Discard{}, 1)
	}
	opened := s.pin.opens()
	s.forward(r.Kept[0], &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		opened(reply)
		r.answer = bytes.Clone(reply)
	}, Whole: true}, 1)
}

// maxReplayed commands are sent before others have their turn: a client chooses the number of commands in its transaction.
const maxReplayed = 1024

// send sends the next commands behind MULTI, which has begun the transaction.
func (r *replay) send(s *Session) {
	next := r.Kept[r.sent:]
	next = next[:min(len(next), maxReplayed)]
	r.sent += len(next)
	for _, kept := range next {
		s.forward(kept, &reply.Reply{Session: s, Muted: true, Whole: true, Done: func(reply []byte) {
			if why := topology.ReadRefusal(reply); why.Reason != topology.NotRefused {
				r.refused = why
			}
		}}, 1)
	}
}

// end refuses a transaction that cannot go on, from the command in row.
func (r *replay) end(s *Session, row *command.Row, why []byte) bool {
	s.replay = nil
	s.refused.Refuse(why, true)
	s.releasePin()
	return s.answer(s.refused.Step(row.Name, s.muted))
}

var queued = []byte("+QUEUED\r\n")

// watchOver returns the handler of the reply to a command on the pin, where to is that of a reply that is no refusal.
func (s *Session) watchOver(row *command.Row, p command.Policy, raw []byte, to reply.Handler) reply.Handler {
	pin := s.pin
	if !s.Clustered() || pin.mode != readsReplies {
		return to
	}
	switch {
	case pin.InTx || pin.Opening > 0:
		muted := s.muted
		return &reply.Guarded{Session: s, To: to, Slot: s.Slot, Read: topology.ReadRefusal, Refused: func(at reply.ID, why topology.Refusal) bool {
			pin.refused = why
			if !muted {
				s.out.Put(at, queued, false)
			}
			return true
		}}
	case pin.Watching && s.Slot >= 0 && (p == command.PinOnce || row.Name == "watch"):
		answer := shared.CrossSlot
		if row.Name == "watch" {
			answer = []byte(resp.OK)
		}
		muted := s.muted
		return &reply.Guarded{Session: s, To: to, Slot: s.Slot, Read: topology.ReadRefusal, Refused: func(at reply.ID, _ topology.Refusal) bool {
			pin.watch.broken = pin.watch.broken || row.Name == "watch"
			if !muted {
				s.out.Put(at, answer, false)
			}
			return true
		}}
	case row.Name == "multi" || s.Slot >= 0 && (p == command.PinOnce || p == command.PinAhead || row.Name == "watch"):
		r := s.repetition(row, raw)
		if s.Asks {
			s.forward(command.Asking, reply.Discard{}, 1)
		}
		return pin.rerouted(r, s.Slot, topology.ReadWaitingRefusal, to)
	}
	return to
}

// rerouted returns the handler of a command that is routed anew if the pin's server refuses it, or cannot be reached. read reads a refusal. to gets
// other replies.
func (p *pinned) rerouted(r *repetition, slot int, read func(reply []byte) topology.Refusal, to reply.Handler) reply.Handler {
	muted := p.s.muted
	return &reply.Guarded{Session: p.s, To: to, Slot: slot, Read: read, Refused: func(_ reply.ID, why topology.Refusal) bool {
		if why.Reason == topology.Vanished {
			p.lookFor(r, slot, muted)
			return true
		}
		return p.elsewhere(r, why)
	}, Unsent: func() bool {
		if p.Watching || p.keep {
			p.s.CutOff() // the state is lost; no command behind this one may run without it
			return true
		}
		return !p.conn.Hopeless() && p.elsewhere(r, topology.Refusal{})
	}}
}

var vanished = resp.AppendRawError(nil, "UNBLOCKED the stream key no longer exists")

// lookFor asks the pin's server for the keys of a command that has waited there for a key which has vanished. If the key was moved, the server refuses the
// question, and the command is routed anew. Otherwise the key was deleted, and the client is told.
func (p *pinned) lookFor(r *repetition, slot int, muted bool) {
	s := p.s
	args := resp.Split(r.raw, nil)
	question := [][]byte{[]byte("EXISTS")}
	for _, i := range r.row.Keys.All(args, nil) {
		question = append(question, args[i])
	}
	s.wait = waitReply
	told := &reply.Reply{
		Session: s, Muted: muted, Unsent: func() []byte { return vanished },
		Done: func([]byte) { s.Resume() }, Replace: func([]byte) []byte { return vanished },
	}
	s.forward(resp.AppendCommand(nil, question...), &reply.Guarded{
		Session: s, To: told, Slot: slot, Read: topology.ReadRefusal,
		Refused: func(_ reply.ID, why topology.Refusal) bool { return p.elsewhere(r, why) },
	}, 1)
}

// elsewhere gives up the pin, and has its only command routed anew. false: the command has been refused for too long.
func (p *pinned) elsewhere(r *repetition, why topology.Refusal) bool {
	if !p.s.again(r, p.conn.At(), why) {
		return false
	}
	if why.Reason == topology.TryLate && p.s.pin == p { // a server that has been demoted closes the connection of a client that has waited
		p.s.pin = nil
		p.discard()
		return true
	}
	p.yield()
	return true
}

// repetition is the one that the command being routed is, or would be.
func (s *Session) repetition(row *command.Row, raw []byte) *repetition {
	if s.repeated != nil {
		s.repeated.attempts.Sent()
		return s.repeated
	}
	return &repetition{row: row, raw: bytes.Clone(raw), began: time.Now()}
}

// yield returns a pin on which nothing is outstanding and that has no state.
func (p *pinned) yield() {
	s := p.s
	if s.pin == p && !p.keep && !p.spent && p.borrowed == 0 {
		s.pin = nil
		s.proxy.Counters.PinReasons.Add(p.reason, -1)
		p.conn.Release()
	}
}

// repeat routes the command again. false: the session waits.
func (s *Session) repeat() bool {
	r := s.repeated
	r.due = false
	if s.wait != waitNone || s.out.Gone() || !s.route(r.row, errands.Shortened(r.row.Name, r.raw, time.Since(r.began))) {
		return false
	}
	if !r.due {
		s.repeated = nil
	}
	return s.wait == waitNone
}

// again has a command routed anew when the view has been refreshed. false: it has been refused for too long.
func (s *Session) again(r *repetition, from upstream.Node, why topology.Refusal) bool {
	if why.Reason != topology.NotRefused {
		r.attempts.Held(s.Wait())
	}
	if s.out.Gone() || !r.attempts.Refused(s.Wait()) {
		return false
	}
	r.asking = s.Refused(why)
	s.repeated, r.due = r, true
	s.wait = waitReply
	s.Later(from, r.attempts.Pause(), s.Resume)
	return true
}
