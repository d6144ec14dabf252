package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// streamHeld is the announced size up to which a command is held whole, if there is plenty of memory: then it can be
// sent again when its slot moves at that moment.
const streamHeld = 16 << 20

// stream implements route. The arguments are those that have come. The command must be held whole also if its key is
// not known yet, or if the session has a connection for a transaction.
func (c *shards) stream(r *request, size int) bool {
	s, key := c.s, r.Row.Keys.Fixed()
	if size < s.proxy.Budget.Allowance(streamHeld) {
		return false
	}
	if key == 0 || len(r.Args) <= key || c.queued != nil || s.pin != nil && !s.pin.fresh || !s.awaitQuiet() {
		return false
	}
	c.Adopt()
	r.Look()
	r.At = c.OwnerOf(r.Slot)
	return true
}

// guardStreamed is guard for such a command. Bytes that have been streamed are gone, so it is not sent again.
func (c *shards) guardStreamed(r *request, to reply.Handler) reply.Handler {
	muted, conn := r.Muted, c.s.pin.conn
	refused := func(at reply.ID, why topology.Refusal) bool {
		if c.NoteRefusal(why, conn.At()); why.Reason == topology.TryLate {
			return false
		}
		if !muted {
			c.s.out.put(at, movedMeanwhile, false)
		}
		return true
	}
	return &reply.Guarded{Session: c.s, To: to, Slot: r.Slot, Read: topology.ReadRefusal, Refused: refused}
}

var movedMeanwhile = resp.AppendRawError(nil, "TRYAGAIN the slot of the key moves or has moved, nothing was done")
