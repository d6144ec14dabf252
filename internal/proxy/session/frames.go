package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/handlers"
	"github.com/lockproxy/lockproxy/internal/proxy/pubsub"
	"github.com/lockproxy/lockproxy/internal/proxy/replies"
	"github.com/lockproxy/lockproxy/internal/proxy/transaction"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// On a pin in pub/sub mode replies cannot be counted by the connection: SUBSCRIBE answers once per channel, UNSUBSCRIBE once per
// channel there was, and in RESP2 messages look like replies. So the session examines every frame, and assigns it to the command that it answers, or to
// none. Redis counts a client's subscriptions in its confirmations, so at each point of the stream the session knows what Redis
// knows, and which frames can come.

// frames is the handler of a command that any number of frames answers: a subscription command, or an EXEC with such commands.
type frames struct {
	s     *Session
	muted bool            // the client sees no replies; it gets confirmations all the same, as from Redis
	exec  *handlers.Reply // handles the array that is the reply to an EXEC; nil: it has come, or there is none
	list  []expected      // the commands that the frames answer, in order; of an EXEC, those behind its array
}

// expected is one command that frames answer.
type expected struct {
	verb string // of a subscription command; ""
	left int    // confirmations still to come, for those; 0: as many as there are subscriptions of its kind

	apply   func(reply []byte)        // as in transaction.Step
	rewrite func(reply []byte) []byte // as in transaction.Step
}

// subscribe sends a subscription command. Its frames are examined from then on.
func (u *pinning) subscribe(row *command.Row, raw []byte) bool {
	s := u.s
	pin := u.pin
	if (pin.mode != readsFrames || pin.InTx || pin.Opening > 0) && !s.awaitQuiet() {
		return false
	}
	e := expected{verb: row.Name, left: len(s.args) - 1}
	if pin.InTx {
		pin.Queue(transaction.Step{Verb: e.verb, Left: e.left}, raw)
		s.forward(raw, s.handler(), 1)
		return true
	}
	u.readFrames()
	pin.Count(raw)
	s.forward(raw, &frames{s: s, muted: s.muted, list: []expected{e}}, 1)
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
	case s.ident.Proto == 3, row.Title == "", row.Name == "quit", row.Name == "reset", row.Name == "ping" && len(s.args) > 2:
		return false, false
	case !s.awaitQuiet():
		return true, false
	case row.Name == "ping":
		return true, s.answer(pubsub.Pong(s.args[1:]))
	}
	return true, s.answer(pubsub.Refusal(s.cmd))
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
	verb, count := pubsub.ReadFrame(b)
	at, h, due := s.Slots.First(pin.conn)
	f, _ := h.(*frames)
	switch {
	case f != nil && f.awaits(verb):
		f.confirm(pin, verb, count)
		s.Put(at, b, false)
		s.answered(at, f.done())
	case kind == resp.Push, pin.Subscribed() && pubsub.IsMessage(verb), !due:
		pin.Confirm(verb, count) // Redis ends subscriptions by itself when a slot moves away
		s.Push(b)
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

// awaits reports whether the next frame may be a confirmation of that kind.
func (f *frames) awaits(verb string) bool {
	return f.exec == nil && len(f.list) > 0 && verb != "" && f.list[0].verb == verb
}

// confirm takes a confirmation.
func (f *frames) confirm(pin *pinned, verb string, count int64) {
	head := &f.list[0]
	if head.left == 0 {
		head.left = int(max(1, pin.CountOf(verb)))
	}
	pin.Confirm(verb, count)
	if head.left--; head.left == 0 {
		f.list = f.list[1:]
	}
}

// done is the number of commands of the client that have been answered in full.
func (f *frames) done() int {
	if f.exec == nil && len(f.list) == 0 {
		return 1
	}
	return 0
}

// Take implements handlers.Handler: b is a whole frame, and no confirmation.
func (f *frames) Take(at replies.ID, b []byte, n int, _ bool) int {
	if f.exec == nil {
		if b = f.reply(b); !f.muted {
			f.s.Put(at, b, false)
		}
		return f.done()
	}
	exec := f.exec
	f.exec = nil
	if b[0] != '*' || b[1] == '-' { // nothing has been executed
		f.list = nil
		return exec.Take(at, b, n, false)
	}
	exec.Done(b)
	if words := f.executed(b); len(words) > 0 {
		f.s.Put(at, words, false)
	}
	return f.done()
}

// executed reads the array of the reply to an EXEC, and returns what the client gets of it. Subscription commands answer with any
// number of frames in the place of one element, so frames behind the array may still belong to the transaction. A client that sees no
// replies gets the confirmations and the messages in the array.
func (f *frames) executed(b []byte) (seen []byte) {
	pin := f.s.pin
	if !f.muted {
		seen = append(seen, b[:bytes.IndexByte(b, '\n')+1]...)
	}
	for _, elem := range transaction.Elements(b) {
		verb, count := pubsub.ReadFrame(elem)
		switch {
		case f.awaits(verb):
			f.confirm(pin, verb, count)
		case elem[0] == '>', pin.Subscribed() && pubsub.IsMessage(verb):
			pin.Confirm(verb, count)
		default:
			if elem = f.reply(elem); f.muted {
				continue
			}
		}
		seen = append(seen, elem...)
	}
	return seen
}

// reply takes the reply to a command that is no subscription command, or was refused. It returns the reply as the client sees it.
func (f *frames) reply(b []byte) []byte {
	if len(f.list) == 0 {
		return b
	}
	head := f.list[0]
	f.list = f.list[1:]
	if head.apply != nil {
		head.apply(b)
	}
	if head.rewrite != nil {
		b = head.rewrite(b)
	}
	return b
}

// Lost implements handlers.Handler.
func (f *frames) Lost(at replies.ID, _ int, _ bool) {
	switch {
	case f.s.Gone():
	case f.exec != nil:
		f.exec.Lost(at, 1, false)
	case !f.muted:
		f.s.refuse(at, len(f.list))
	}
}

// expects is the number of commands whose frames have not come.
func (f *frames) expects() int {
	if f == nil {
		return 0
	}
	return len(f.list)
}

var _ handlers.Handler = (*frames)(nil)

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
		s.forward(raw, &handlers.Reply{Session: s.side(), Done: func(reply []byte) {
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
	h := &handlers.Reply{Session: s.side(), Muted: s.muted}
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
