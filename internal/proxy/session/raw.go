package session

import (
	"slices"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/resp"
)

// routeUnread sends MONITOR, SYNC or PSYNC: if Redis accepts it, the connection carries requests and replies no longer, and bytes
// pass both ways unread. If Redis refuses it, the session continues as before.
func (s *Session) routeUnread(raw []byte) bool {
	if !s.awaitQuiet() {
		return false
	}
	pin := s.pin
	pin.fresh = false
	switch {
	case pin.InTx || s.subscriber():
		pin.Queued++
		pin.spent = true // Redis refuses or queues it; its effect at EXEC is not examined
		s.forward(raw, s.handler(), 1)
	case s.muted:
		// No reply will show the outcome. Redis keeps the reply mode too from now on.
		pin.mode = readsRaw
		pin.conn.ReadRaw()
		s.sendUnread(slices.Concat(replyCommands[s.reply], raw))
	default:
		s.wait = waitReply
		s.readFrames()
		pin.mode = readsVerdict
		pin.waits = true // a replica may have to wait for its copy
		pin.conn.ReadVerdict()
		s.forward(raw, &replyHandler{s: s, done: func(reply []byte) {
			pin.mode = readsFrames
			pin.marked(reply, false, clients.Redirection{})
			s.resume()
		}}, 1)
	}
	return true
}

// verdict handles the bytes before Redis's answer to MONITOR, SYNC or PSYNC.
func (s *Session) verdict(b []byte, kind resp.Kind) {
	if kind != 0 {
		s.frame(b, kind) // the refusal, or a push
		return
	}
	s.pin.mode = readsRaw
	s.resume()
	if at, _, due := s.slots.First(s.pin.conn); due {
		s.put(at, b, false)
		s.answered(at, 1)
	}
}

// replconf sends REPLCONF, which prepares a connection for replication. Redis does not answer ACK and GETACK and the
// arguments behind them, which have a meaning only during replication. So Redis gets the arguments before them, and only a refusal
// is passed on.
func (s *Session) replconf(raw []byte) bool {
	h := &replyHandler{s: s, muted: s.muted}
	for i := 1; i < len(s.args) && len(s.args)%2 == 1; i += 2 {
		if word := command.Keyword(s.args, i); word == "ack" || word == "getack" {
			raw = resp.AppendCommand(nil, s.args[:i]...)
			h.replace = func(reply []byte) []byte {
				if resp.IsOK(reply) {
					return nil
				}
				return reply
			}
			break
		}
	}
	return s.markPin(raw, h, true, clients.Redirection{})
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
func (s *Session) routeRaw(p command.Policy, raw []byte) bool {
	if p == command.Lock {
		s.say(monitorsCannotLock)
		return true
	}
	if p == command.AboutClients {
		s.say(monitorsCannotAsk)
		return true
	}
	s.sendUnread(raw)
	return true
}

func (s *Session) sendUnread(raw []byte) {
	if !s.muted {
		s.pin.unread++
	}
	if s.pin.conn.Append(raw, nil, 0, 0) != nil {
		s.pin.broken()
	}
}
