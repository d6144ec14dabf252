package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// On a pin in pub/sub mode replies cannot be counted by the connection: SUBSCRIBE answers once per channel, UNSUBSCRIBE once per
// channel there was, and in RESP2 messages look like replies. So the session examines every frame, and assigns it to the command that it answers, or to
// none. Redis counts a client's subscriptions in its confirmations, so at each point of the stream the session knows what Redis
// knows, and which frames can come.

// subscribe sends a subscription command. Its frames are examined from then on.
func (u *pinning) subscribe(row *command.Row, raw []byte) bool {
	s := u.s
	pin := u.pin
	if (pin.mode != readsFrames || pin.InTx || pin.Opening > 0) && !s.awaitQuiet() {
		return false
	}
	channels := len(s.args) - 1
	if pin.InTx {
		pin.Queue(Step{Verb: row.Name, Left: channels}, raw)
		s.forward(raw, s.handler(), 1)
		return true
	}
	u.readFrames()
	pin.Count(raw)
	s.forward(raw, AwaitReply(s.side(), &pin.Subscriptions, s.muted, row.Name, channels), 1)
	return true
}

// execSubscriptions sends an EXEC whose transaction holds subscription commands.
func (u *pinning) execSubscriptions(raw []byte) bool {
	s := u.s
	if !s.awaitQuiet() {
		return false
	}
	pin := u.pin
	u.readFrames()
	exec := &reply.Reply{Session: s.side(), Muted: s.muted, Done: func(reply []byte) {
		s.resume()
		if !bytes.HasPrefix(reply, []byte("-")) || bytes.HasPrefix(reply, []byte("-EXECABORT")) {
			pin.End()
		}
	}}
	pin.execution = AwaitExec(s.side(), &pin.Subscriptions, exec, pin.Queued-pin.Base, pin.Steps)
	if pin.Changes() { // as without subscription commands
		s.wait = waitReply
	}
	s.forward(raw, pin.execution, 1)
	return true
}

var noSubscriptionsInTx = resp.AppendError(nil, resp.Err, "subscriptions are not possible inside a transaction in front of a cluster")

// listen routes the commands of a session in front of a cluster that its subscriptions concern. They do not occupy its pin. handled is false for
// other commands. done is false if the command must wait.
func (l *lanes) listen(row *command.Row, p command.Policy) (handled, done bool) {
	s := l.s
	switch {
	case s.guard.Restricted(), p == command.PubSub && len(s.args) < 2 && !strings.HasSuffix(row.Name, "unsubscribe"): // Redis refuses it
		return false, false
	case p == command.PubSub && !s.awaitQuiet():
		return true, false
	case p == command.PubSub && s.pin != nil && s.pin.InTx:
		s.poison(noSubscriptionsInTx)
		return true, true
	case p == command.PubSub:
		s.wait = waitReply
		s.ears.Ask(row.Name, s.args[1:], s.ident.Proto, s.Slots.Hold(), s.muted)
		return true, true
	case s.ident.Proto == 3, row.Malformed(s.args), row.Name == "quit", row.Name == "reset", row.Name == "ping" && len(s.args) > 2:
		return false, false
	case !s.awaitQuiet():
		return true, false
	case row.Name == "ping":
		return true, s.answer(Pong(s.args[1:]))
	}
	return true, s.answer(Refusal(s.cmd))
}

func (u *pinning) readFrames() {
	if u.pin.mode == readsReplies {
		u.pin.mode = readsFrames
		u.pin.fresh = false
		// Redis keeps the hash tables of a connection's subscriptions at the size that they had, which shows in the order of
		// the replies to an UNSUBSCRIBE of everything.
		u.pin.spent = true
		u.pin.conn.ReadFrames()
	}
}

// readReplies leaves pub/sub mode. Nothing is outstanding.
func (u *pinning) readReplies() {
	u.pin.mode = readsReplies
	u.pin.conn.ReadReplies()
}

// frame handles one whole frame in pub/sub mode.
func (u *pinning) frame(b []byte, kind resp.Kind) {
	s := u.s
	pin := u.pin
	verb, count := ReadPubSubFrame(b)
	at, h, due := s.Slots.First(pin.conn)
	f, _ := h.(*Frames)
	switch {
	case f != nil && f.Awaits(verb):
		f.Confirm(verb, count)
		s.Put(at, b, false)
		s.answered(at, f.Done())
	case kind == resp.Push, pin.Subscribed() && IsMessage(verb), !due:
		pin.Confirm(verb, count) // Redis ends subscriptions by itself when a slot moves away
		s.Message(b)
		if s.Slots.Due() == 0 {
			s.quiet()
		}
	default:
		s.receive(at, b, 1, false)
	}
}

// loseFrames deals with the commands on a pin in pub/sub mode that get no reply.
func (u *pinning) loseFrames(p *pinned, sent bool) {
	s := u.s
	for {
		at, _, due := s.Slots.First(p.conn)
		if !due {
			return
		}
		s.lose(at, 1, sent)
	}
}

// routeUnread sends MONITOR, SYNC or PSYNC: if Redis accepts it, the connection carries requests and replies no longer, and bytes
// pass both ways unread. If Redis refuses it, the session continues as before.
func (u *pinning) routeUnread(raw []byte) bool {
	s := u.s
	if !s.awaitQuiet() {
		return false
	}
	pin := u.pin
	pin.fresh = false
	switch {
	case pin.InTx || u.subscriber():
		pin.Count(raw)
		pin.spent = true // Redis refuses or queues it; its effect at EXEC is not examined
		s.forward(raw, s.handler(), 1)
	case s.muted:
		// No reply will show the outcome. Redis keeps the reply mode too from now on.
		pin.mode = readsRaw
		pin.conn.ReadRaw()
		u.sendUnread(slices.Concat(replyCommands[s.reply], raw))
	default:
		s.wait = waitReply
		u.readFrames()
		pin.mode = readsVerdict
		pin.waits = true // a replica may have to wait for its copy
		pin.conn.ReadVerdict()
		s.forward(raw, &reply.Reply{Session: s.side(), Done: func(reply []byte) {
			pin.mode = readsFrames
			pin.marked(reply, false, nil)
			s.resume()
		}}, 1)
	}
	return true
}

// verdict handles the bytes before Redis's answer to MONITOR, SYNC or PSYNC.
func (u *pinning) verdict(b []byte, kind resp.Kind) {
	s := u.s
	if kind != 0 {
		u.frame(b, kind) // the refusal, or a push
		return
	}
	u.pin.mode = readsRaw
	s.resume()
	if at, _, due := s.Slots.First(u.pin.conn); due {
		s.Put(at, b, false)
		s.answered(at, 1)
	}
}

// replconf sends REPLCONF, which prepares a connection for replication. Redis does not answer ACK and GETACK and the
// arguments behind them, which have a meaning only during replication. So Redis gets the arguments before them, and only a refusal
// is passed on.
func (u *pinning) replconf(raw []byte) bool {
	s := u.s
	h := &reply.Reply{Session: s.side(), Muted: s.muted}
	for i := 1; i < len(s.args) && len(s.args)%2 == 1; i += 2 {
		if word := command.Keyword(s.args, i); word == "ack" || word == "getack" {
			raw = resp.AppendCommand(nil, s.args[:i]...)
			h.Replace = func(reply []byte) []byte {
				if resp.IsOK(reply) {
					return nil
				}
				return reply
			}
			break
		}
	}
	return u.markPin(raw, h, true, nil)
}

var monitorsCannotLock = resp.AppendError(nil, resp.Err, "lock commands are not possible on a connection that monitors or replicates")

var monitorsCannotAsk = resp.AppendError(nil, resp.Err, "CLIENT LIST, KILL and UNBLOCK are not possible on a connection that monitors or replicates")

// replyCommands put a connection into a reply mode without an answer.
var replyCommands = map[replyMode][]byte{
	replyOff:  resp.AppendCommand(nil, "CLIENT", "REPLY", "OFF"),
	replySkip: resp.AppendCommand(nil, "CLIENT", "REPLY", "SKIP"),
}

// routeRaw routes a command of a session whose pin is not read any more. The pin stays the session's until its end, so the
// command's effect on the connection does not matter.
func (u *pinning) routeRaw(p command.Policy, raw []byte) bool {
	s := u.s
	if p == command.Lock {
		s.Say(monitorsCannotLock)
		return true
	}
	if p == command.AboutClients {
		s.Say(monitorsCannotAsk)
		return true
	}
	u.sendUnread(raw)
	return true
}

func (u *pinning) sendUnread(raw []byte) {
	s := u.s
	if !s.muted {
		u.pin.unread++
	}
	s.transmit(u.pin.conn, raw, 0, 0)
}
