package proxy

import (
	"slices"

	"lockproxy/internal/resp"
)

// routeUnread sends MONITOR, SYNC or PSYNC: what follows on that connection is not requests and replies any more, so from
// then on bytes go both ways unread.
func (s *Session) routeUnread(raw []byte) bool {
	if !s.awaitQuiet() {
		return false
	}
	pin := s.pin
	pin.fresh = false
	if pin.inTx || s.subscriber() {
		pin.queued++
		s.forward(raw, s.receiver(), 1) // Redis refuses or queues it
		return true
	}
	pin.mode = readsRaw
	pin.conn.ReadRaw()
	if s.muted {
		raw = slices.Concat(replyCommands[s.reply], raw) // from here on Redis keeps this too
	}
	s.sendUnread(raw)
	return true
}

var monitorsCannotLock = resp.AppendError(nil, resp.Err, "lock commands are not possible on a connection that monitors or replicates")

var monitorsCannotAsk = resp.AppendError(nil, resp.Err, "CLIENT LIST, KILL and UNBLOCK are not possible on a connection that monitors or replicates")

// replyCommands put a connection into a reply mode without an answer.
var replyCommands = map[replyMode][]byte{
	replyOff:  resp.AppendCommand(nil, "CLIENT", "REPLY", "OFF"),
	replySkip: resp.AppendCommand(nil, "CLIENT", "REPLY", "SKIP"),
}

// routeRaw routes a command of a session whose pin is not read any more. The pin stays the session's until its end, so what
// the command does to the connection need not be known here.
func (s *Session) routeRaw(p policy, raw []byte) bool {
	if p == locks {
		s.emit(monitorsCannotLock)
		return true
	}
	if p == about {
		s.emit(monitorsCannotAsk)
		return true
	}
	s.sendUnread(raw)
	return true
}

func (s *Session) sendUnread(raw []byte) {
	if !s.muted {
		s.pin.unread++
	}
	if s.pin.conn.Append(raw, nil, 0) != nil {
		s.pin.broken()
	}
}
