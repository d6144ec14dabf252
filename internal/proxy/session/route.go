package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// route sends one command as its policy says. false: not now. The session's wait has the reason, and the command is
// parsed again after the wait.
func (s *Session) route(r *request) bool {
	s.usual = false
	if r.Row.Policy == command.Shared && r.IsLong() && r.Row.Keys.Early(command.FewArgs) {
		r.Args = resp.FirstArgs(r.Raw, s.args[:0], command.FewArgs)
	} else {
		r.Args = resp.Split(r.Raw, s.args[:0])
	}
	anew := r.Held // a server has refused it: CLIENT REPLY SKIP is over, and it has been counted
	if r.Policy = r.Row.PolicyFor(r.Args); !anew {
		r.Muted = s.replyMode != replyOn
	}
	if r.Policy == command.Shared && (s.pin == nil || s.pin.fresh) &&
		int64(len(r.Raw)) > s.proxy.Upstream.MaxShared() {
		r.Policy = command.PinOnce // Redis may close the connection, which is the client's own then
	}
	args, policy := r.Args, r.Policy
	skip := s.replyMode == replySkip
	decide := s.byState
	if policy == command.Identity && s.proxy.Settings.ClientAuth == AuthNone {
		if r.Raw = s.disown(r); r.Raw == nil {
			decide = s.agree
		}
	}
	size := len(r.Raw)
	s.out.time(s.ID, classOf(policy), 1, s.active)
	routed := s.routed(r, decide)
	if routed && !anew {
		s.proxy.Counters.Traffic.Add(s.ID, classOf(policy), 1, size)
		if skip {
			s.replyMode = replyOn
		}
	}
	s.args = emptied(args)
	return routed
}

// byState routes a command by the state of the session.
func (s *Session) byState(r *request) (routed bool) {
	if r.Policy == command.Augmented && command.IsOwnInfo(r.Args) && s.proxy.Upstream.Unavailable() {
		return s.awaitQuiet() && s.answer(r, s.outageInfo())
	}
	if s.doubted {
		if d := s.admit(r); d != command.Undecided {
			return d == command.CarriedOut
		}
	}
	switch d := s.way.Place(r); {
	case d == command.CarriedOut, d == command.Postponed:
		return d == command.CarriedOut
	case s.pin == nil, d == command.OnLane:
		return s.routeShared(r)
	case s.pin.mode == readsRaw:
		return s.routeRaw(r)
	}
	return s.routePinned(r)
}

// classOf is the class of a policy in metrics.
func classOf(p command.Policy) int {
	switch p {
	case command.Shared, command.Augmented:
		return metrics.ClassShared
	case command.Local, command.AboutClients:
		return metrics.ClassLocal
	case command.Lock:
		return metrics.ClassLock
	default:
		return metrics.ClassPinned
	}
}

// routeShared routes a command for a lane, and any of a session that has no pin.
func (s *Session) routeShared(r *request) bool {
	s.mix(r.Row)
	if s.mustWait(r.Row) && !s.awaitQuiet() {
		return false
	}
	switch r.Policy {
	case command.Shared:
		s.way.Send(r, r.Raw, reply.Passing(r.Muted))
		return true
	case command.Augmented:
		if !s.awaitReader() {
			return false
		}
		s.way.Send(r, r.Raw, s.augment(r))
		return true
	case command.AboutClients:
		return s.awaitReader() && s.askAbout(r)
	case command.Local:
		return s.awaitQuiet() && s.local(r)
	case command.Lock:
		return s.lock(r)
	default:
		if !s.awaitQuiet() {
			return false
		}
		if r.Policy == command.Identity && s.pinTimedOut == nil {
			return s.reidentify(r)
		}
		refusal, ok := s.takePin(r, r.Row.Name, r.Policy, !r.Row.MayWait(r.Policy))
		if refusal != nil {
			return s.refuse(r, refusal)
		}
		return ok && s.routePinned(r)
	}
}

// routePinned routes a command of a session whose pin answers each command once.
func (s *Session) routePinned(r *request) bool {
	pin, to := s.pin, reply.Passing(r.Muted)
	if pin.tx.mayBeOpen() {
		if refusal := refusalInTx(r); refusal != nil {
			if !s.awaitQuiet() {
				return false // only Redis knows whether the transaction is open
			}
			if pin.tx.inTx {
				return s.poison(r, refusal)
			}
		}
	}
	if s.pinWaits() && s.unanswered >= mayHold(s.proxy.Budget, s.proxy.Limits().Unanswered) && !s.awaitQuiet() {
		return false
	}
	mayWait := r.Row.MayWait(r.Policy)
	if mayWait && pin.tx.mayBeOpen() && !s.awaitQuiet() {
		return false // only Redis knows whether the transaction is open, in which no command waits
	}
	pin.waits = pin.waits || mayWait && !pin.tx.inTx
	switch r.Policy {
	case command.Transaction:
		return s.transact(r)
	case command.Identity:
		return s.reidentify(r)
	case command.PubSub:
		return s.subscribe(r)
	case command.PinRaw:
		return s.routeUnread(r)
	case command.PinAfterWrite:
		if !pin.tx.inTx {
			return s.countReplicas(r)
		}
	case command.Lock, command.Local, command.AboutClients:
		return s.answerOnPin(r)
	case command.Augmented:
		if !s.awaitReader() {
			return false
		}
		to = s.augment(r)
	case command.Replication:
		return s.replconf(r)
	case command.PinOnce:
		if done := s.pauseOf(r); done != nil && !pin.tx.inTx { // else a lane that stands still tells
			to = &reply.Reply{Session: s, Muted: r.Muted, Done: done}
		}
	case command.Shared: // sent as it is
	default:
		return s.keepPin(r)
	}
	pin.fresh = false
	pin.tx.count()
	s.way.Send(r, r.Raw, s.way.Guard(r, to))
	return true
}

// answerOnPin routes a command that the proxy answers itself, for a session that has a pin.
func (s *Session) answerOnPin(r *request) bool {
	if !s.awaitQuiet() || r.Policy == command.AboutClients && !s.awaitReader() {
		return false
	}
	switch {
	case s.subscriber() && r.Policy == command.Lock:
		return s.answer(r, command.SubscriberRefusal(r.Row.Name))
	case s.subscriber() && r.Row.Name != "quit" && r.Row.Name != "reset":
		s.way.Send(r, r.Raw, reply.Passing(r.Muted))
		return true
	case s.pin.sole && r.Policy == command.Lock:
		return s.answer(r, noSelect)
	case r.Policy == command.Lock:
		return s.lock(r)
	case r.Policy == command.AboutClients:
		return s.askAbout(r)
	}
	return s.local(r)
}

// Waits and renewals have connections of their own.
var noSelect = resp.AppendRawError(nil,
	"NOPERM lock commands in another database than 0 need the right to run the 'select' command")

// subscriber reports whether Redis refuses all but a few commands because of subscriptions. Nothing is outstanding.
func (s *Session) subscriber() bool {
	return s.pin != nil && s.pin.mode == readsFrames && s.pin.subscribed() && s.ident.Proto == 2
}

// keepPin sends a command that may leave a trace on the connection. The connection then stays the session's own, unless
// Redis refuses the command.
func (s *Session) keepPin(r *request) bool {
	if r.Row.Name == "client" && command.Keyword(r.Args, 1) == "tracking" {
		if at := redirection(r.Args); at > 0 && clients.IsNumber(r.Args[at]) {
			return s.trackTo(r, at)
		}
	}
	var accepted func()
	if r.Row.Name == "script" { // SCRIPT DEBUG
		if !s.awaitQuiet() {
			return false
		}
		if pin, on := s.pin, command.Keyword(r.Args, 2) != "no"; !pin.tx.inTx { // there Redis refuses it
			accepted = func() {
				if pin.debugs = on; on && s.pin == pin {
					s.readFrames()
				}
			}
		}
	}
	return s.markPin(r, r.Raw, &reply.Reply{Session: s, Muted: r.Muted}, r.Policy != command.PinSpent, accepted)
}

// markPin sends such a command. h gets its reply. keep: the connection becomes the session's own if Redis accepts the
// command; then accepted is called, if it is not nil, and the session waits for it. In a transaction it is nil.
func (s *Session) markPin(r *request, raw []byte, h *reply.Reply, keep bool, accepted func()) bool {
	pin := s.pin
	if pin.tx.mayBeOpen() && !s.awaitQuiet() {
		return false
	}
	pin.fresh = false
	h.Done = func(reply []byte) {
		if accepted != nil { // the session waits for it
			s.Resume()
		}
		pin.marked(reply, keep, accepted)
	}
	pin.tx.count()
	if pin.tx.inTx {
		pin.tx.traces, pin.tx.keeps = true, pin.tx.keeps || keep
		s.way.Send(r, raw, reply.Passing(r.Muted))
		return true
	}
	if accepted != nil {
		s.wait = waitReply
	}
	s.way.Send(r, raw, h)
	return true
}

// marked notes the outcome of such a command.
func (p *pinned) marked(reply []byte, keep bool, accepted func()) {
	if untouched(reply) {
		return
	}
	p.spent = true
	if reply[0] == '-' {
		return
	}
	p.keep = p.keep || keep
	if accepted != nil {
		accepted()
	}
}

// refusalInTx is the answer to a command that is not possible in a transaction; nil: it is possible. The proxy makes or
// edits the reply to such a command, or must know it before the next command, and EXEC gives all replies at once.
func refusalInTx(r *request) []byte {
	switch name := r.Row.Name; {
	case r.Row.Malformed(r.Args): // Redis says so
		return nil
	case r.Policy == command.Lock:
		return command.LockInTx
	case r.Policy == command.PubSub:
		return command.NoSubscriptionsInTx
	case r.Policy == command.AboutClients, name == "hello":
		return command.NotInTx
	case name == "client":
		switch sub := command.Keyword(r.Args, 1); {
		case sub == "getname": // Redis knows the name: it is that of the connection
		case r.Policy == command.Local, r.Policy == command.Augmented, sub == "tracking" && redirection(r.Args) > 0:
			return command.NotInTx
		}
	}
	return nil
}

// poison answers err and makes the open transaction fail, like a command that Redis refuses to queue.
func (s *Session) poison(r *request, err []byte) bool {
	s.way.Send(r, command.Malformed, &reply.Reply{Session: s, Muted: r.Muted, Replace: func([]byte) []byte { return err }})
	return true
}

// emptied makes the scratch for arguments ready for the next command. It drops a scratch that a command of many
// arguments has made large.
func emptied(args [][]byte) [][]byte {
	if cap(args) > maxKeptArgs {
		return nil
	}
	clear(args) // they would keep the buffer alive from which they were cut
	return args[:0]
}

// maxKeptArgs bounds the scratch that an idle session keeps.
const maxKeptArgs = 64
