package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In a cluster a transaction belongs to the server of its keys, but MULTI names none. So it is kept back until the
// first key, and so are the commands without a key that come before that. If the slot of a transaction moves, the
// transaction is over: EXEC carries out nothing.

// placement is what a pin remembers of its transaction.
type placement struct {
	txSlot int  // of the first key; -1: there was none
	ends   bool // EXEC or DISCARD has been sent
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
func (s *Session) keepBack(r *request) bool {
	if !s.awaitQuiet() {
		return false
	}
	s.kept = &keptTx{}
	return r.answerWith([]byte(resp.OK))
}

// routeKept routes a command behind a MULTI that is kept back. false: the session waits.
func (s *Session) routeKept(r *request) bool {
	if !s.awaitQuiet() {
		return false
	}
	s.adopt()
	r.look()
	tx := s.kept
	if tx.begun {
		return tx.proceed(r)
	}
	switch r.row.Name {
	case "reset", "quit":
		s.kept = nil
		return s.local(r)
	case "discard":
		s.kept = nil
		return r.answerWith([]byte(resp.OK))
	case "multi":
		if len(r.args) == 1 {
			return r.answerWith(nested)
		}
		return tx.add(r)
	case "exec": // any server will do
	default:
		if r.slot < 0 {
			return tx.add(r)
		}
	}
	return tx.begin(r)
}

// add keeps a command without a key back. A user's right to it shows at EXEC. A command that Redis refuses whatever the
// state of its connection is goes to some server, which says so, and another one takes its place.
func (tx *keptTx) add(r *request) bool {
	s := r.s
	kept, words, bad := r.raw, queued, r.row.Malformed(r.args)
	if refusal := s.notInTx(r); refusal != nil || bad {
		kept, words = command.Malformed, refusal
	}
	tx.commands = append(tx.commands, bytes.Clone(kept))
	tx.size += len(kept)
	if bad {
		r.target = s.home()
		r.send(r.handler())
		return true
	}
	return r.answerWith(words)
}

var allInTx = resp.AppendRawError(nil, "CROSSSLOT A transaction is at one server, the command concerns all of them")

// notInTx is the refusal of a command that is not possible in a transaction; nil: it is possible, or Redis refuses it.
func (s *Session) notInTx(r *request) []byte {
	switch {
	case s.absent(r):
		return nil
	case r.policy == command.PubSub:
		return noSubscriptionsInTx
	case r.neverInTx():
		return r.refusalInTx()
	case scatter.NeedsAll(r.row.Name, command.Keyword(r.args, 1)):
		return allInTx
	}
	return s.impossible(r)
}

// begin sends MULTI to the server of r, which follows when MULTI has been answered. false: the session waits.
func (tx *keptTx) begin(r *request) bool {
	s := r.s
	if err := s.pinTimedOut; s.pin == nil && err != nil {
		s.pinTimedOut = nil
		return tx.end(r, s.proxy.NoPinFree(err, s.Addr))
	}
	if r.target, s.hasty = s.serverOf(r), true; s.pin == nil && !s.takePin(r, "multi", command.Transaction) {
		return false
	}
	s.pin.fresh, s.pin.placement = false, placement{txSlot: -1}
	tx.begun, tx.answer = true, nil
	tx.attempts.Sent()
	opened := s.pin.opens()
	s.forward(ordinaryRow, command.Multi, &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		opened(reply)
		tx.answer = bytes.Clone(reply)
	}, Whole: true}, 1)
	return tx.next(r)
}

// proceed goes on behind the answer to MULTI. false: the session waits.
func (tx *keptTx) proceed(r *request) bool {
	s := r.s
	switch {
	case tx.answer == nil || topology.ReadRefusal(tx.answer).Reason == topology.TryLate:
		return tx.retry(r)
	case !resp.IsOK(tx.answer): // the commands behind it would run one by one
		return tx.end(r, tx.answer)
	case len(tx.commands) == 0:
		s.kept = nil
		return s.routePinned(r)
	}
	return tx.send(s) && tx.next(r)
}

// next goes on at once if the connection is down already, so that nothing is outstanding. false: the session waits.
func (tx *keptTx) next(r *request) bool {
	return r.s.awaitQuiet() && !r.s.out.Gone() && r.s.routeKept(r)
}

// retry gives up the connection on which MULTI has failed. MULTI is sent again after a pause, unless it has been
// refused for too long. false: the session waits.
func (tx *keptTx) retry(r *request) bool {
	s := r.s
	if pin := s.pin; pin != nil {
		s.pin = nil
		pin.discard()
	}
	if tx.begun = false; tx.attempts.Refused(s.cluster.FailoverWait()) {
		s.wait = waitReply
		s.Later(topology.Any, tx.attempts.Pause(), s.Resume)
		return false
	}
	if tx.answer == nil {
		tx.answer = s.Refusal()
	}
	return tx.end(r, tx.answer)
}

// mostAtOnce commands are sent before others have their turn: a client chooses the number of commands in its
// transaction.
const mostAtOnce = 1024

// send sends the next commands behind MULTI, which has begun the transaction. false: the session waits.
func (tx *keptTx) send(s *Session) bool {
	for range min(len(tx.commands), mostAtOnce) {
		raw := tx.commands[0]
		args := resp.Split(raw, nil)
		r := s.newRequest(s.proxy.Policies().Lookup(args[0]), raw)
		r.args, r.policy, r.muted = args, r.row.PolicyFor(args), true
		if !r.routed(s.routePinned) {
			return false
		}
		tx.commands = tx.commands[1:]
	}
	return true
}

// end refuses a transaction that cannot begin, and closes the connection: MULTI has been answered, and the commands of
// the transaction that the client has sent already would run one by one. why is nil if Redis cannot be reached.
func (tx *keptTx) end(r *request, why []byte) bool {
	s := r.s
	s.kept = nil
	s.releasePin()
	if why == nil {
		s.giveUp()
		return true
	}
	r.answerWith(why)
	s.goodbye(nil)
	return true
}

// routeAt decides about a command that the pin's server cannot have as it is.
func (s *Session) routeAt(r *request) decision {
	pin := s.pin
	r.asking = r.asking && pin.fresh // it has been routed to this pin so
	r.look()
	if (pin.ends || pin.tx.opening > 0 || !pin.tx.inTx) && !s.awaitQuiet() {
		return postponed
	}
	pin.ends = r.row.Name == "exec" || r.row.Name == "discard"
	if pin.tx.inTx {
		return s.routeInTx(r)
	}
	return s.routeOutsideTx(r)
}

// routeOutsideTx is routeAt for a session that is in no transaction. Nothing is outstanding.
func (s *Session) routeOutsideTx(r *request) decision {
	pin := s.pin
	s.adopt()
	if !pin.fresh {
		if d := s.scatter(r); d != undecided {
			return d
		}
	}
	if r.slot < 0 {
		return undecided
	}
	owner := s.ownerOf(r.slot)
	fits := owner == pin.conn.At() // it may have moved since the WATCH
	if r.row.Name == "watch" {
		fits = r.slot == pin.watch.slot
	}
	switch {
	case r.policy == command.Shared && (pin.tx.watching || !pin.fresh && !fits):
		r.target = owner
		r.send(r.handler())
		return carriedOut
	case pin.tx.watching && !fits:
		return decided(r.answerWith(shared.CrossSlot))
	}
	return undecided
}

// routeInTx is routeAt for a session that is in a transaction, whose first key decides the slot of all.
func (s *Session) routeInTx(r *request) decision {
	pin := s.pin
	if r.policy == command.Transaction && r.row.Name != "watch" {
		return undecided
	}
	absent, refusal := s.absent(r), s.notInTx(r)
	if (absent || refusal != nil) && !s.awaitQuiet() {
		return postponed
	}
	switch {
	case absent: // a command that answers for any user is queued in its place
		pin.tx.queue(step{rewrite: func([]byte) []byte { return noCluster }})
		r.forward(command.Hello, r.handler())
		return carriedOut
	case refusal != nil:
		return decided(s.poison(r, refusal))
	case r.slot < 0, r.slot == pin.txSlot:
		return undecided
	case pin.txSlot < 0 && (!pin.tx.watching || r.slot == pin.watch.slot):
		pin.txSlot = r.slot
		return undecided
	}
	return decided(s.poison(r, shared.CrossSlot))
}

var (
	queued = []byte("+QUEUED\r\n")
	nested = resp.AppendError(nil, resp.Err, "MULTI calls can not be nested")
)

// The slot of a transaction has moved.
var (
	tryAgain = resp.AppendRawError(nil, "TRYAGAIN Multiple keys request during rehashing of slot")
	txMoved  = resp.AppendRawError(nil, "EXECABORT Transaction discarded because its slot has moved.")
)

// watchOver returns the handler of the reply to a command on the pin, where to is that of a reply that is no refusal.
func (s *Session) watchOver(r *request, to reply.Handler) reply.Handler {
	pin := s.pin
	if !s.clustered() || pin.mode != readsReplies {
		return to
	}
	switch {
	case pin.tx.mayBeOpen():
		return s.inPlace(r, to, func(why topology.Refusal) []byte {
			s.noteRefusal(why, pin.conn.At())
			if pin.tx.watching {
				pin.watch.broken = true
				return queued
			}
			return tryAgain
		})
	case pin.tx.watching && r.slot >= 0 && (r.policy == command.PinOnce || r.row.Name == "watch"):
		watches := r.row.Name == "watch"
		return s.inPlace(r, to, func(topology.Refusal) []byte {
			if watches {
				pin.watch.broken = true
				return []byte(resp.OK)
			}
			return shared.CrossSlot
		})
	case r.slot >= 0 && (r.policy == command.PinOnce || r.policy == command.PinAhead || r.row.Name == "watch"):
		r.keep()
		if r.asking {
			r.forward(command.Asking, reply.Discard{})
		}
		return pin.rerouted(r, r.slot, topology.ReadWaitingRefusal, to)
	}
	return to
}

// inPlace returns the handler of a reply that gets other words in place of a refusal by the pin's server.
func (s *Session) inPlace(r *request, to reply.Handler, words func(topology.Refusal) []byte) reply.Handler {
	muted := r.muted
	refused := func(at reply.ID, why topology.Refusal) bool {
		if b := words(why); !muted {
			s.out.put(at, b, false)
		}
		return true
	}
	return &reply.Guarded{Session: s, To: to, Slot: r.slot, Read: topology.ReadRefusal, Refused: refused}
}
