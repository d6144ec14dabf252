package session

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In a cluster a transaction belongs to the server of its keys, but MULTI names none. So it is kept back until the
// first key, and so are the commands without a key that come before that. If the slot of a transaction moves, the
// transaction is over: EXEC carries out nothing.

// placement is what a pin remembers of its transaction.
type placement struct {
	home int  // slot of the first key; -1: there was none
	ends bool // EXEC or DISCARD has been sent
}

// watch is what a pin remembers of its WATCH.
type watch struct {
	slot   int  // of the watched keys; a WATCH of another slot is refused
	broken bool // the server no longer has them all, so it cannot tell whether they change
}

// A keptTx is a transaction that no server has yet.
type keptTx struct {
	commands [][]byte // behind MULTI; they have no key
	size     int      // their bytes
	begun    bool     // MULTI has been sent
	answer   []byte   // the reply to it; nil: it could not be sent
	attempts topology.Attempts
}

// keepBack begins a transaction without a server.
func (s *Session) keepBack() bool {
	if !s.awaitQuiet() {
		return false
	}
	s.kept = &keptTx{}
	return s.answer([]byte(resp.OK))
}

// routeKept routes a command behind a MULTI that is kept back. The first key names the server, and EXEC has any. false:
// the session waits.
func (s *Session) routeKept(row *command.Row, p command.Policy, raw []byte) bool {
	tx := s.kept
	if !s.awaitQuiet() {
		return false
	}
	s.adopt()
	s.look(row, s.args)
	switch {
	case tx.begun && (tx.answer == nil || topology.ReadRefusal(tx.answer).Reason == topology.TryLate):
		if pin := s.pin; pin != nil {
			s.pin = nil
			pin.discard()
		}
		if tx.begun = false; tx.attempts.Refused(s.cluster.FailoverWait()) {
			s.wait = waitReply
			s.Later(upstream.AnyNode, tx.attempts.Pause(), s.Resume)
			return false
		}
		if tx.answer == nil {
			tx.answer = shared.NoUpstream
		}
		return tx.end(s, row, tx.answer)
	case tx.begun && !resp.IsOK(tx.answer): // the commands behind it would run one by one
		return tx.end(s, row, tx.answer)
	case tx.begun && len(tx.commands) == 0:
		s.kept = nil
		return s.routePinned(row, p, raw)
	case tx.begun:
		if !tx.send(s) {
			return false
		}
	case row.Name == "reset", row.Name == "quit":
		s.kept = nil
		return s.local(row, raw)
	case row.Name == "discard":
		s.kept = nil
		return s.answer([]byte(resp.OK))
	case s.slot < 0 && row.Name != "exec" && row.Name != "multi":
		return tx.add(s, row, p, raw)
	default:
		if err := s.pinTimedOut; s.pin == nil && err != nil {
			s.pinTimedOut = nil
			return tx.end(s, row, s.proxy.NoPinFree(err, s.Addr))
		}
		if s.target, s.hasty = s.serverOf(s.slot), true; s.pin == nil && !s.takePin("multi", command.Transaction) {
			return false
		}
		tx.begin(s)
	}
	return s.awaitQuiet() && !s.out.Gone() && s.routeKept(row, p, raw) // the connection is down already, if nothing is outstanding
}

// add keeps a command without a key back. A user's right to it shows at EXEC. A command that Redis refuses whatever the
// state of its connection is goes to some server, which says so, and another one takes its place.
func (tx *keptTx) add(s *Session, row *command.Row, p command.Policy, raw []byte) bool {
	kept, words, bad := raw, queued, row.Malformed(s.args)
	if refusal := s.notInTx(row, p, raw); refusal != nil || bad {
		kept, words = command.Malformed, refusal
	}
	tx.commands = append(tx.commands, bytes.Clone(kept))
	tx.size += len(kept)
	if bad {
		s.target = s.home()
		s.send(raw, s.handler())
		return true
	}
	return s.answer(words)
}

// notInTx is the refusal of a command that is not possible in a transaction; nil: it is possible, or Redis refuses it.
func (s *Session) notInTx(row *command.Row, p command.Policy, raw []byte) []byte {
	switch {
	case s.absent(row):
		return nil
	case p == command.PubSub:
		return noSubscriptionsInTx
	case p == command.Lock, p == command.AboutClients, row.Name == "client" && command.Keyword(s.args, 1) == "reply":
		return notInTx
	case scatter.NeedsAll(row.Name, command.Keyword(s.args, 1)):
		return allInTx
	}
	return s.impossible(row, p, raw)
}

// begin sends MULTI.
func (tx *keptTx) begin(s *Session) {
	s.pin.fresh, s.pin.placement = false, placement{home: -1}
	tx.begun, tx.answer = true, nil
	tx.attempts.Sent()
	opened := s.pin.opens()
	s.forward(command.Multi, &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		opened(reply)
		tx.answer = bytes.Clone(reply)
	}, Whole: true}, 1)
}

// mostAtOnce commands are sent before others have their turn: a client chooses the number of commands in its
// transaction.
const mostAtOnce = 1024

// send sends the next commands behind MULTI, which has begun the transaction. false: the session waits.
func (tx *keptTx) send(s *Session) bool {
	args, muted := s.args, s.muted
	s.kept, s.muted = nil, true
	defer func() { s.kept, s.args, s.muted = tx, args, muted }()
	for range min(len(tx.commands), mostAtOnce) {
		raw := tx.commands[0]
		s.args = resp.Split(raw, nil)
		row := s.proxy.Policies().Lookup(s.args[0])
		if !s.routePinned(row, row.PolicyFor(s.args), raw) {
			return false
		}
		tx.commands = tx.commands[1:]
	}
	return true
}

// end refuses a transaction that cannot begin, from the command in row.
func (tx *keptTx) end(s *Session, row *command.Row, why []byte) bool {
	s.kept = nil
	s.refused.Refuse(why, true)
	s.releasePin()
	return s.answer(s.refused.Step(row.Name, s.muted))
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

// routeAt looks whether the pin's server is the one for a command. handled is false if it is. Else done is false if the
// command must wait.
func (s *Session) routeAt(row *command.Row, p command.Policy, raw []byte) (done, handled bool) {
	pin := s.pin
	asks := s.asks && pin.fresh // it has been routed to this pin so
	s.look(row, s.args)
	s.asks = asks
	s.noteIfAlters(pin.conn.At())
	if (pin.ends || pin.Opening > 0) && !s.awaitQuiet() {
		return false, true
	}
	pin.ends = row.Name == "exec" || row.Name == "discard"
	if !pin.InTx {
		if !s.awaitQuiet() {
			return false, true
		}
		s.adopt()
		if !pin.fresh {
			if handled, done := s.whole(row, p, raw); handled {
				return done, true
			}
		}
		switch {
		case p == command.Shared && s.slot >= 0 && (pin.Watching || !pin.fresh && s.ownerOf(s.slot) != pin.conn.At()): // it may have moved since the WATCH
			s.target = s.ownerOf(s.slot)
			s.send(raw, s.handler())
			return true, true
		case !pin.Watching || s.slot < 0:
		case row.Name == "watch" && s.slot != pin.watch.slot, row.Name != "watch" && s.ownerOf(s.slot) != pin.conn.At():
			return s.answer(shared.CrossSlot), true
		}
		return false, false
	}
	if p == command.Transaction && row.Name != "watch" {
		return false, false
	}
	absent, refusal := s.absent(row), s.notInTx(row, p, raw)
	if (absent || refusal != nil) && !s.awaitQuiet() {
		return false, true
	}
	switch {
	case absent: // a command that answers for any user is queued in its place
		pin.Queue(Step{Rewrite: func([]byte) []byte { return noCluster }})
		s.forward(command.Hello, s.handler(), 1)
		return true, true
	case refusal != nil:
		s.poison(refusal)
		return true, true
	case s.slot >= 0 && pin.home < 0:
		if pin.Watching && s.slot != pin.watch.slot {
			s.poison(shared.CrossSlot)
			return true, true
		}
		pin.home = s.slot
	}
	if s.slot >= 0 && s.slot != pin.home {
		s.poison(shared.CrossSlot)
		return true, true
	}
	return false, false
}

var queued = []byte("+QUEUED\r\n")

// The slot of a transaction has moved.
var (
	tryAgain = resp.AppendRawError(nil, "TRYAGAIN Multiple keys request during rehashing of slot")
	txMoved  = resp.AppendRawError(nil, "EXECABORT Transaction discarded because its slot has moved.")
)

// watchOver returns the handler of the reply to a command on the pin, where to is that of a reply that is no refusal.
func (s *Session) watchOver(row *command.Row, p command.Policy, raw []byte, to reply.Handler) reply.Handler {
	pin := s.pin
	if !s.clustered() || pin.mode != readsReplies {
		return to
	}
	switch {
	case pin.InTx || pin.Opening > 0:
		muted := s.muted
		return &reply.Guarded{Session: s, To: to, Slot: s.slot, Read: topology.ReadRefusal, Refused: func(at reply.ID, why topology.Refusal) bool {
			s.noteRefusal(why)
			words := tryAgain
			if pin.Watching {
				words, pin.watch.broken = queued, true
			}
			if !muted {
				s.out.Put(at, words, false)
			}
			return true
		}}
	case pin.Watching && s.slot >= 0 && (p == command.PinOnce || row.Name == "watch"):
		answer := shared.CrossSlot
		if row.Name == "watch" {
			answer = []byte(resp.OK)
		}
		muted := s.muted
		return &reply.Guarded{Session: s, To: to, Slot: s.slot, Read: topology.ReadRefusal, Refused: func(at reply.ID, _ topology.Refusal) bool {
			pin.watch.broken = pin.watch.broken || row.Name == "watch"
			if !muted {
				s.out.Put(at, answer, false)
			}
			return true
		}}
	case s.slot >= 0 && (p == command.PinOnce || p == command.PinAhead || row.Name == "watch"):
		r := s.repetition(row, raw)
		if s.asks {
			s.forward(command.Asking, reply.Discard{}, 1)
		}
		return pin.rerouted(r, s.slot, topology.ReadWaitingRefusal, to)
	}
	return to
}

// rerouted returns the handler of a command that is routed anew if the pin's server refuses it, or cannot be reached.
// read reads a refusal. to gets other replies.
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

// lookFor asks the pin's server for the keys of a command that has waited there for a key which has vanished. If the
// key was moved, the server refuses the question, and the command is routed anew. Otherwise the key was deleted, and
// the client is told.
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
	if s.wait != waitNone || s.out.Gone() || !s.route(r.row, shortened(r.row.Name, r.raw, time.Since(r.began))) {
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
		r.attempts.Held(s.cluster.FailoverWait())
	}
	if s.out.Gone() || !r.attempts.Refused(s.cluster.FailoverWait()) {
		return false
	}
	r.asking = s.noteRefusal(why)
	s.repeated, r.due = r, true
	s.wait = waitReply
	s.Later(from, r.attempts.Pause(), s.Resume)
	return true
}
