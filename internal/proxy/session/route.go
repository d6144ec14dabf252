package session

import (
	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// notInTx refuses a command that is not possible in a transaction.
var notInTx = resp.AppendError(nil, resp.Err, "Command not allowed inside a transaction")

// route sends one command as its policy says. false: not now. The session's wait has the reason, and the command is
// parsed again after the wait.
func (s *Session) route(row *command.Row, raw []byte) bool {
	s.usual = false
	if row.Policy == command.Shared && isLong(raw) && row.Keys.Early(fewArgs) {
		s.args = resp.Begin(raw, fewArgs)
	} else {
		s.args = resp.Split(raw, s.args[:0])
	}
	s.muted = s.reply != replyOn
	s.writes, s.scripts = row.Writes, row.Script
	p := row.PolicyFor(s.args)
	if p == command.Shared && s.pin == nil && int64(len(raw)) > s.proxy.Upstream.MaxShared() {
		p = command.PinOnce // Redis may close the connection, which is the client's own then
	}
	skip := s.reply == replySkip && p != command.PinAhead
	if p == command.Identity && s.proxy.Settings.ClientAuth == shared.AuthNone {
		if raw = s.disown(row.Name, raw); raw == nil {
			return s.agree()
		}
	}
	class := classOf(p)
	s.out.Time(s.ID, class, 1, s.active)
	var routed, handled bool
	if s.refused.Open() {
		if words := s.refused.Step(row.Name, s.muted); words != nil {
			handled, routed = true, s.answer(words)
		}
	}
	if !handled && s.kept != nil {
		handled, routed = true, s.routeKept(row, p, raw)
	}
	if !handled && s.clustered() && (p == command.PubSub || s.clusterSubs.Listening()) {
		handled, routed = s.listen(row, p)
	}
	switch {
	case handled:
	case s.pin == nil:
		routed = s.routeShared(row, p, raw)
	case s.pin.mode == readsRaw:
		routed = s.routeRaw(p, raw)
	default:
		routed = s.routePinned(row, p, raw)
	}
	if routed && p != command.PinAhead {
		s.proxy.Counters.Traffic.Add(s.ID, class, 1, len(raw))
		if skip {
			s.reply = replyOn
		}
	}
	s.args = emptied(s.args)
	return routed
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

// routeShared routes a command of a session that has no pin.
func (s *Session) routeShared(row *command.Row, p command.Policy, raw []byte) bool {
	if s.clustered() {
		if !s.aim(row) {
			return false
		}
		if row.Name == "multi" && len(s.args) == 1 {
			return s.keepBack()
		}
		if handled, done := s.whole(row, p, raw); handled {
			return done
		}
	}
	s.mix()
	if s.mustWait() && !s.awaitQuiet() {
		return false
	}
	switch p {
	case command.Shared:
		s.forward(raw, s.handler(), 1)
		return true
	case command.Augmented:
		if !s.mayAnswer() {
			return false
		}
		s.forward(raw, s.augment(row, len(raw)), 1)
		return true
	case command.AboutClients:
		return s.mayAnswer() && s.askAbout(raw)
	case command.Local:
		return s.awaitQuiet() && s.local(row, raw)
	case command.Lock:
		return s.lock(raw)
	default:
		if !s.awaitQuiet() {
			return false
		}
		if err := s.pinTimedOut; err != nil {
			s.pinTimedOut = nil
			words := s.proxy.NoPinFree(err, s.Addr)
			s.refused.Behind(row.Name, words, s.muted)
			return s.answer(words)
		}
		if p == command.Identity && s.visit(row.Name, raw) {
			return true
		}
		s.hasty = !row.MayWait(p)
		return s.takePin(row.Name, p) && s.routePinned(row, p, raw)
	}
}

// routePinned routes a command of a session whose pin answers each command once.
func (s *Session) routePinned(row *command.Row, p command.Policy, raw []byte) bool {
	if s.clustered() && s.pin.mode == readsReplies {
		if done, handled := s.routeAt(row, p, raw); handled {
			return done
		}
	}
	pin, to := s.pin, s.handler()
	if s.pinWaits() && s.unanswered >= mayHold(s.proxy.Budget, s.proxy.Limits().Unanswered) && !s.awaitQuiet() {
		return false
	}
	mayWait := row.MayWait(p)
	if mayWait && (pin.InTx || pin.Opening > 0) && !s.awaitQuiet() {
		return false // only Redis knows whether the transaction is open, in which no command waits
	}
	pin.waits = pin.waits || mayWait && !pin.InTx
	switch p {
	case command.Transaction:
		if row.Name == "exec" && pin.Subscribes() {
			return s.execSubscriptions(raw)
		}
		return s.transact(row, raw)
	case command.Identity:
		return s.reidentify(row.Name, raw)
	case command.PubSub:
		return s.subscribe(row, raw)
	case command.PinRaw:
		return s.routeUnread(raw)
	case command.PinAhead:
		to, s.wait = s.asked, waitReply
	case command.PinAfterWrite:
		if !pin.InTx {
			return s.countReplicas(row, raw)
		}
	case command.Lock, command.Local, command.AboutClients:
		if !s.awaitQuiet() || p == command.AboutClients && !s.mayAnswer() {
			return false
		}
		switch {
		case pin.InTx:
			return s.queueLocal(row, p, raw)
		case s.subscriber() && p == command.Lock:
			return s.answer(Refusal(row.Name))
		case s.subscriber() && row.Name != "quit" && row.Name != "reset":
			s.forward(raw, to, 1)
			return true
		case p == command.Lock:
			return s.lock(raw)
		case p == command.AboutClients:
			return s.askAbout(raw)
		}
		return s.local(row, raw)
	case command.Augmented:
		if !s.mayAnswer() {
			return false
		}
		h := s.augment(row, len(raw))
		if pin.InTx && row.Name == "client" {
			if h.Replace != nil && pin.Full() {
				s.poison(tooManyEdits)
				return true
			}
			pin.Queue(Step{Rewrite: h.Replace})
			s.forward(raw, to, 1)
			return true
		}
		to = h
	case command.Replication:
		return s.replconf(raw)
	case command.PinOnce:
		if done := s.pauseOf(row); done != nil {
			if pin.InTx {
				pin.fresh = false
				pin.Queue(Step{Apply: done})
				s.forward(raw, to, 1)
				return true
			}
			to = &reply.Reply{Session: s, Muted: s.muted, Done: done}
		}
	case command.Shared: // sent as it is
	default:
		return s.keepPin(row, p, raw)
	}
	pin.fresh = false
	pin.Count()
	s.forward(raw, s.watchOver(row, p, raw, to), 1)
	return true
}

// subscriber reports whether Redis refuses all but a few commands because of subscriptions. Nothing is outstanding.
func (s *Session) subscriber() bool {
	return s.pin != nil && s.pin.mode == readsFrames && s.pin.Subscribed() && s.ident.Proto == 2
}

// keepPin sends a command that may leave a trace on the connection. The connection then stays the session's own, unless
// Redis refuses the command.
func (s *Session) keepPin(row *command.Row, p command.Policy, raw []byte) bool {
	if row.Name == "client" && command.Keyword(s.args, 1) == "tracking" {
		if at := redirection(s.args); at > 0 && clients.IsNumber(s.args[at]) {
			return s.trackTo(at, raw)
		}
	}
	var accepted func()
	if row.Name == "script" { // SCRIPT DEBUG
		pin, on := s.pin, command.Keyword(s.args, 2) != "no"
		accepted = func() { pin.debugs = on }
	}
	return s.markPin(raw, &reply.Reply{Session: s, Muted: s.muted}, p != command.PinSpent, accepted)
}

// markPin sends such a command. h gets its reply. keep: the connection becomes the session's own if Redis accepts the
// command; then accepted is called, if it is not nil.
func (s *Session) markPin(raw []byte, h *reply.Reply, keep bool, accepted func()) bool {
	pin := s.pin
	if (pin.InTx || pin.Opening > 0) && !s.awaitQuiet() {
		return false
	}
	pin.fresh = false
	h.Done = func(reply []byte) { pin.marked(reply, keep, accepted) }
	if pin.InTx {
		pin.Queue(Step{Apply: func(reply []byte) { s.pin.marked(reply, keep, accepted) }}) // it may be another one by then
		s.forward(raw, s.handler(), 1)
		return true
	}
	pin.Count()
	s.forward(raw, h, 1)
	return true
}

// marked notes the outcome of such a command.
func (p *pinned) marked(reply []byte, keep bool, accepted func()) {
	if Untouched(reply) {
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

// queueLocal handles commands of the proxy inside a transaction, where Redis would queue them.
func (s *Session) queueLocal(row *command.Row, p command.Policy, raw []byte) bool {
	switch {
	case p == command.Lock, p == command.AboutClients, row.Name == "client" && command.Keyword(s.args, 1) == "reply":
		s.poison(notInTx)
		return true
	case row.Name == "reset", row.Name == "quit":
		return s.local(row, raw)
	case command.Keyword(s.args, 1) == "setname" && len(s.args) == 3:
		name := string(s.args[2])
		s.pin.Names += len(name)
		s.pin.Queue(Step{Apply: func(reply []byte) {
			if resp.IsOK(reply) {
				s.rename(name, true)
			}
		}})
	case command.Keyword(s.args, 1) == "getname":
		s.pin.Count()
	default:
		s.pin.Queue(Step{Apply: func([]byte) { s.pin.spent = true }})
	}
	s.forward(raw, s.handler(), 1)
	return true
}

// poison answers err and makes the open transaction fail, like a command that Redis refuses to queue.
func (s *Session) poison(err []byte) {
	s.forward(command.Malformed, &reply.Reply{Session: s, Muted: s.muted, Replace: func([]byte) []byte { return err }}, 1)
}

var tooManyEdits = resp.AppendError(nil, resp.Err, "too many CLIENT and HELLO commands in one transaction, 128 are possible")

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

var writesInDoubt = resp.AppendError(nil, resp.InDoubt, "a server to which this connection has written was replaced, its successor may not have the writes")

var allInTx = resp.AppendRawError(nil, "CROSSSLOT A transaction is at one server, the command concerns all of them")

var noCluster = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")

// whole handles a command that concerns the cluster, not one server of it. handled is false for other commands. done is
// false if the command must wait.
func (s *Session) whole(row *command.Row, p command.Policy, raw []byte) (handled, done bool) {
	switch {
	case s.absent(row):
		return true, s.awaitQuiet() && s.answer(noCluster)
	case row.Name == "scan":
		return s.scan(raw)
	case p == command.Lock:
		return !s.awaitQuiet(), false
	case p == command.PinAfterWrite && !s.awaitQuiet():
		return true, false
	case p == command.PinAfterWrite && s.writesLost():
		return true, s.answer(writesInDoubt)
	}
	if refusal := s.impossible(row, p, raw); refusal != nil {
		return true, s.awaitQuiet() && s.answer(refusal)
	}
	if isLong(raw) && scatter.Divides(row.Name) && !s.proxy.Settings.RefuseCrossSlot {
		if done = s.awaitQuiet(); done {
			s.divide(row, raw)
		}
		return true, done
	}
	if split, join := scatter.Split(row.Name, s.args); split != nil && !s.proxy.Settings.RefuseCrossSlot {
		if !s.awaitQuiet() {
			return true, false
		}
		g := s.gather(len(split), join)
		for i, part := range split {
			s.slot, s.target = part.Slot, s.ownerOf(part.Slot)
			s.send(part.Raw, g.Part(i))
		}
		return true, true
	}
	if command.IsOwnInfo(s.args) {
		return false, false
	}
	if join := scatter.Everywhere(row.Name, command.Keyword(s.args, 1), s.args); join != nil {
		if !s.awaitQuiet() {
			return true, false
		}
		return true, s.everywhere(row, raw, join)
	}
	return false, false
}

// absent reports whether the command being routed is refused by a server that is no part of a cluster.
func (s *Session) absent(row *command.Row) bool {
	switch row.Name {
	case "cluster":
		return len(s.args) > 1
	case "readonly", "readwrite", "asking":
		return true
	}
	return false
}

// impossible is the refusal of a command whose state would be that of one server; nil: it has none.
func (s *Session) impossible(row *command.Row, p command.Policy, raw []byte) []byte {
	switch p {
	case command.PinForever, command.PinRaw, command.Replication:
		if title := row.TitleOf(raw); title != "" {
			return resp.AppendError(nil, resp.Err, title+" is not available in front of a cluster")
		}
	default:
	}
	return nil
}
