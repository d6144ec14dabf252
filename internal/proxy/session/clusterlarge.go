package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Bytes of a large command that have been streamed are gone, and cannot follow a redirection. So its server is asked
// first whether it serves the key; the question follows redirections, and waits for a successor.

// heldWhole implements route.
func (c *shards) heldWhole() int { return c.s.proxy.Budget.Allowance(streamHeld) }

// stream implements route. The arguments are those that have come. The command must be held whole if its key is not
// known yet, or if the session has a connection for a transaction.
func (c *shards) stream(r *request) bool {
	s, key := c.s, r.row.Keys.Fixed()
	switch {
	case s.large.state == largeLocated && s.large.refusal != nil:
		return true
	case s.large.state == largeLocated && s.pin != nil: // it may have ended since the answer
		r.look()
		if s.large.asking {
			s.forward(ordinaryRow, command.Asking, reply.Discard{}, 1)
		}
		return true
	case key == 0 || len(r.args) <= key || c.queued != nil || s.pin != nil && !s.pin.fresh:
		return false
	}
	q := s.newRequest(command.Ahead, resp.AppendCommand(nil, "EXISTS", string(r.args[key])))
	q.h = &reply.Reply{
		Session: s, Muted: true, Whole: true, Done: func(reply []byte) { s.found(q, reply) },
		Missed: func() { s.large.state, s.large.refusal = largeLocated, s.Refusal() }, // the command is read to its end
	}
	s.large = progress{question: q}
	return false
}

// found takes the answer to the question of stream. If the user may not ask it, the server is the one that the view
// names.
func (s *Session) found(question *request, reply []byte) {
	s.large.state, s.large.asking = largeLocated, question.Asking
	if topology.ReadRefusal(reply).Reason == topology.TryLate {
		s.large.refusal = bytes.Clone(reply)
	}
	s.Resume()
}

// streamed implements route.
func (c *shards) streamed(r *request, h *reply.Guarded) {
	muted, conn := r.muted, c.s.pin.conn
	h.Slot, h.Read = r.Slot, topology.ReadRefusal
	h.Refused = func(at reply.ID, why topology.Refusal) bool {
		if c.NoteRefusal(why, conn.At()); why.Reason == topology.TryLate {
			return false
		}
		if !muted {
			c.s.out.put(at, movedMeanwhile, false)
		}
		return true
	}
}

var movedMeanwhile = resp.AppendRawError(nil,
	"TRYAGAIN the slot of the key moved while the command was sent, which was not carried out")
