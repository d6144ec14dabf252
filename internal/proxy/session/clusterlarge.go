package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// heldWhole implements route: a command that is held whole can be sent again.
func (c *shards) heldWhole() int { return c.s.proxy.Budget.Allowance(streamHeld) }

// stream implements route. The arguments are those that have come. The command must be held whole if its key is not
// known yet, or if the session has a connection for a transaction.
func (c *shards) stream(r *request) bool {
	s, key := c.s, r.row.Keys.Fixed()
	if key == 0 || len(r.args) <= key || c.queued != nil || s.pin != nil && !s.pin.fresh || !s.awaitQuiet() {
		return false
	}
	c.Adopt()
	r.look()
	r.At = c.OwnerOf(r.Slot)
	return true
}

// streamed implements route. Bytes that have been streamed are gone, so the command is not sent again.
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

var movedMeanwhile = resp.AppendRawError(nil, "TRYAGAIN the slot of the key moves or has moved, nothing was done")
