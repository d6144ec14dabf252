package lockcmds

import (
	"cmp"

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
	x := &extension{e: e, c: c, h: h, call: script.Extend{Key: cmd.Key, Part: e.partOf(c, k.owner), Lease: cmd.Lease}}
	if h != nil && x.call.Session != "" {
		x.call.Fence = h.fence
	}
	e.mu.Unlock()
	send := func() { x.send(s.Session) }
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

// extension is one EXTENDLOCK in progress.
type extension struct {
	e    *Engine
	c    *client
	h    *hold // nil: no session of this proxy holds the lock for that owner
	call script.Extend
	q    *calls.Request
}

// send sends the extension. Requires the session lock.
func (x *extension) send(s contract.Session) {
	call := x.call.Call()
	x.q = &calls.Request{Session: s, Call: call, Pipelined: true, Done: x.answered}
	if x.call.Session == "" || x.call.Fence != 0 { // else a copy could find a later grant of the owner
		x.q.Again = call
	}
	x.e.calls.Send(x.q)
}

// answered is the end of an extension, or sends it once more: for a later grant of the owner than this proxy knew. Requires the session
// lock, or that the session has ended.
func (x *extension) answered(o calls.Outcome) []byte {
	a, err := calls.Decoded(o.Reply, o.Err, script.DecodeExtended)
	if !a.Other {
		return x.extended(a, err)
	}
	x.e.mu.Lock()
	if h := x.h; x.e.holds[h.holdKey] == h {
		x.e.dropLocked(h)
	}
	x.h = nil
	x.call.Request, x.call.Fence = x.e.nextRequest(), a.Fence
	x.e.mu.Unlock()
	call := x.call.Call()
	x.q.Again, x.q.Once = call, a.Fence == 0
	x.e.calls.Repeat(x.q)
	return nil
}

// extended turns the answer of an extension into the reply. The watchdog goes on with the new length. What the answer says of the lease
// is true from the first copy on: that one may have set it. Requires the session lock, or that the session has ended.
func (x *extension) extended(a script.Extended, err error) (out []byte) {
	e, c, h, k, lease, sentAt := x.e, x.c, x.h, holdKey{x.call.Key, x.call.Owner}, x.call.Lease, x.q.SentAt
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
