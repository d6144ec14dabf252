package lockcmds

import (
	"cmp"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/watchdog"
)

func (e *Engine) startExtend(s contract.Caller, cmd grammar.Command) {
	e.mu.Lock()
	c := e.clientLocked(s)
	k := holdKey{cmd.Key, cmp.Or(cmd.Owner, c.owner)}
	if e.knowsLossLocked(c, k) {
		e.mu.Unlock()
		s.Reply(replies.LostLease())
		return
	}
	h := e.holds[k]
	call := script.Extend{Key: cmd.Key, Part: e.partOf(c, k.owner), Lease: cmd.Lease}.Call()
	e.mu.Unlock()
	send := func() {
		e.calls.Send(&calls.Request{Session: s.Session, Call: call, Again: call, Pipelined: true, Done: func(o calls.Outcome) []byte {
			a, err := calls.Decoded(o.Reply, o.Err, script.DecodeExtended)
			return e.extended(c, h, k, cmd.Lease, o.SentAt, a, err)
		}})
	}
	switch {
	case h == nil:
		send()
	case cmd.Lease >= h.ttl: // a renewal on its way cannot give the lock a longer lease than this
		h.lease.Pause(nil)
		send()
	default:
		e.ordered(s.Session, h.lease, send, func() { h.lease.Continue() })
	}
}

// extended turns the answer of an extension into the reply. The watchdog goes on with the new length. Requires the session lock, or that
// the session has ended.
func (e *Engine) extended(
	c *client, h *hold, k holdKey, lease time.Duration, sentAt time.Time, a script.Extended, err error,
) (out []byte) {
	if h != nil && calls.IsOverwritten(err) {
		a, err = script.Extended{}, nil
	}
	var told *loss
	e.mu.Lock()
	lost := false
	if h != nil {
		lost = h.lost
		if e.holds[k] != h {
			h = nil
		}
	}
	switch {
	case err != nil:
		if h != nil {
			h.lease.Continue()
		}
		out = replies.Failure(err)
	case a.Held:
		if h != nil && h.fence == a.Fence && h.counted(a.Holds, sentAt) {
			h.ttl = lease
			h.promiseLocked(sentAt)
			if !h.lease.Resume(sentAt, h.entry()) {
				h.lease = e.watchdog.Track(h.entry(), sentAt)
			}
		} else if h != nil {
			h.lease.Continue()
		}
		if out = redcon.AppendInt(nil, 1); h != nil {
			c.lost.Forget(k.key, k.owner)
		} else {
			out = e.tellLostLocked(c, k, lost, out)
		}
	case h != nil && !h.givenUp():
		told = e.loseLocked(h, watchdog.ReasonGone, c)
		out = replies.LostLease()
	case h != nil:
		e.dropLocked(h)
		out = replies.NotHeld()
	default:
		out = e.tellLostLocked(c, k, lost, replies.NotHeld())
	}
	e.mu.Unlock()
	e.tell(told)
	return out
}
