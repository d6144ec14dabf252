package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// WAIT and WAITAOF count the replicas that have the writes of a connection. Those of a session travelled on a lane. So
// a mark, sent in front of the command on the session's own connection, has Redis count from a point behind them. Redis
// before 7.2 counts from the end of the connection's last command, whatever it was: no ACL refuses HELLO. Later
// versions and Valkey count from the last command that went to the replicas. PUBLISH does; the channel has no
// subscriber.
var (
	markCommand = resp.AppendCommand(nil, "HELLO")
	markWrite   = resp.AppendCommand(nil, "PUBLISH", "lockproxy:wait", "")
)

// countReplicas sends WAIT or WAITAOF on the pin. If Redis refuses the mark, it would count replicas without the
// writes, so the refusal is the reply.
func (s *Session) countReplicas(r *request) bool {
	pin := s.pin
	mark, needed := markWrite, true
	if pin.conn.AnswersRefusals() || s.lane != nil && s.lane.IsBefore72() { // before 7.2
		mark, needed = markCommand, false
	}
	var refusal []byte
	s.way.Send(r, mark, &reply.Reply{Session: s, Muted: true, Whole: true, Done: func(reply []byte) {
		if needed && reply[0] == '-' {
			refusal = bytes.Clone(reply)
		}
	}})
	pin.fresh = false
	pin.tx.queued += 2
	s.way.Send(r, r.Raw, &reply.Reply{Session: s, Muted: r.Muted, Replace: func(reply []byte) []byte {
		if refusal != nil && reply[0] != '-' {
			return refusal
		}
		return reply
	}})
	return true
}
