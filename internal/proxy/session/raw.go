package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// routeUnread sends MONITOR, SYNC or PSYNC: if Redis accepts it, the connection carries requests and replies no longer,
// and bytes pass both ways unread. If Redis refuses it, the session continues as before.
func (s *Session) routeUnread(r *request) bool {
	if !s.awaitQuiet() {
		return false
	}
	pin := s.pin
	pin.fresh = false
	switch {
	case pin.tx.inTx || s.subscriber():
		pin.tx.count()
		pin.spent = true // Redis refuses or queues it; its effect at EXEC is not examined
		s.way.Send(r, r.Raw, reply.Passing(r.Muted))
	case r.Muted:
		// No reply will show the outcome. Redis keeps the reply mode too from now on.
		pin.mode = readsRaw
		pin.conn.ReadRaw()
		s.sendUnread(r, slices.Concat(replyCommands[s.replyMode], r.Raw))
	default:
		s.wait = waitReply
		s.readFrames()
		pin.mode = readsVerdict
		pin.waits = true // a replica may have to wait for its copy
		pin.conn.ReadVerdict()
		s.way.Send(r, r.Raw, &reply.Reply{Session: s, Done: func(reply []byte) {
			pin.mode = readsFrames
			pin.marked(reply, false, nil)
			s.Resume()
		}})
	}
	return true
}

// replyCommands put a connection into a reply mode without an answer.
var replyCommands = map[replyMode][]byte{
	replyOff:  resp.AppendCommand(nil, "CLIENT", "REPLY", "OFF"),
	replySkip: resp.AppendCommand(nil, "CLIENT", "REPLY", "SKIP"),
}

// verdict handles the bytes before Redis's answer to MONITOR, SYNC or PSYNC.
func (s *Session) verdict(b []byte, kind resp.Kind) {
	if kind != 0 {
		s.frame(b, kind) // the refusal, or a push
		return
	}
	s.pin.mode = readsRaw
	s.Resume()
	if at, _, due := s.out.Slots.First(s.pin.conn); due {
		s.out.put(at, b, false)
		s.Answered(at, 1)
	}
}

// replconf sends REPLCONF, which prepares a connection for replication. Redis does not answer ACK and GETACK and the
// arguments behind them, which have a meaning only during replication. So Redis gets the arguments before them, and
// only a refusal is passed on.
func (s *Session) replconf(r *request) bool {
	h := &reply.Reply{Session: s, Muted: r.Muted}
	for i := 1; i < len(r.Args) && len(r.Args)%2 == 1; i += 2 {
		if word := command.Keyword(r.Args, i); word == "ack" || word == "getack" {
			r.Raw = resp.AppendCommand(nil, r.Args[:i]...)
			h.Replace = func(reply []byte) []byte {
				if resp.IsOK(reply) {
					return nil
				}
				return reply
			}
			break
		}
	}
	return s.markPin(r, r.Raw, h, true, nil)
}

// unreadRefuses is the reply to commands of the proxy on a connection whose bytes pass unread.
func unreadRefuses(which string) []byte {
	return resp.AppendError(nil, resp.Err, which+" are not possible on a connection that monitors or replicates")
}

// routeRaw routes a command of a session whose pin is not read any more. The pin stays the session's until its end, so
// the command's effect on the connection does not matter.
func (s *Session) routeRaw(r *request) bool {
	switch r.Policy {
	case command.Lock:
		s.out.say(unreadRefuses("lock commands"))
	case command.AboutClients:
		s.out.say(unreadRefuses("CLIENT LIST, KILL and UNBLOCK"))
	default:
		s.sendUnread(r, r.Raw)
	}
	return true
}

func (s *Session) sendUnread(r *request, raw []byte) {
	if !r.Muted {
		s.pin.unread++
	}
	s.transmit(s.pin.conn, raw, 0, 0)
}
