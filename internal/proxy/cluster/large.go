package cluster

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Stream finds the server of a large command, of which the start and these arguments have come. false: it must be held
// whole, or the session waits. If there is room it is held whole: then it can be sent again when its slot moves at that
// moment. It must be held whole also if its key is not known yet, or if the session has a connection for a transaction.
func (c *Route) Stream(r *command.Request, size, room int) bool {
	if size < room {
		return false
	}
	key, pin := r.Row.Keys.Fixed(), c.Host.Pin()
	if key == 0 || len(r.Args) <= key || c.queued != nil || pin != nil && !pin.State().Fresh || !c.Host.AwaitQuiet() {
		return false
	}
	c.Adopt()
	r.Look()
	r.At = c.OwnerOf(r.Slot)
	return true
}

// guardStreamed is Guard for such a command. Bytes that have been streamed are gone, so it is not sent again.
func (c *Route) guardStreamed(r *command.Request, to reply.Handler) reply.Handler {
	muted, pin := r.Muted, c.Host.Pin()
	refused := func(at reply.ID, why topology.Refusal) bool {
		if c.NoteRefusal(why, pin.At()); why.Reason == topology.TryLate {
			return false
		}
		if !muted {
			c.Host.Put(at, movedMeanwhile, false)
		}
		return true
	}
	return &guarded{host: c.Host, to: to, slot: r.Slot, refused: refused}
}

var movedMeanwhile = resp.AppendRawError(nil, "TRYAGAIN the slot of the key moves or has moved, nothing was done")
