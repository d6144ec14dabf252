package lockcmds

import (
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
	"lockproxy/internal/watchdog"
)

func (e *Engine) startExtend(s Caller, cmd grammar.Command) {
	owner := cmd.Owner
	e.mu.Lock()
	c := e.clientLocked(s)
	if owner == "" {
		owner = c.owner
	}
	k := holdKey{cmd.Key, owner}
	if e.knowsLossLocked(c, k) {
		e.mu.Unlock()
		s.Reply(lostLease())
		return
	}
	if r := e.returning[k]; r != nil {
		e.deferLocked(r, s.Session, func() { e.startExtend(s, cmd) }, nil)
		e.mu.Unlock()
		return
	}
	h := e.holds[k]
	e.mu.Unlock()
	send := func() {
		if h != nil {
			e.mu.Lock()
			h.extending++
			e.mu.Unlock()
		}
		sentAt := e.clock.Now()
		e.script(s.Session, Call{
			Call:      script.Extend{Key: cmd.Key, Owner: owner, Lease: cmd.Lease}.Call(),
			Pipelined: true,
			Done: func(reply resp.Value, err error) []byte {
				a, err := decoded(reply, err, script.DecodeExtended)
				return e.extended(c, h, k, cmd.Lease, sentAt, a, err)
			},
		})
	}
	if h == nil {
		send()
		return
	}
	e.ordered(s.Session, h.lease, send, func() { h.lease.Continue() })
}

// extended turns the answer of an extension into the reply. The watchdog goes on with the new length. Requires the session lock.
func (e *Engine) extended(
	c *client, h *hold, k holdKey, lease time.Duration, sentAt time.Time, a script.Extended, err error,
) (out []byte) {
	if h != nil && isOverwritten(err) {
		a, err = script.Extended{}, nil
	}
	var told *loss
	e.mu.Lock()
	asked, lost := h, false
	if h != nil {
		h.extending--
		lost = h.lost
		if e.holds[k] != h {
			h = nil
		}
	}
	switch {
	case err != nil:
		if h != nil {
			h.lease.Continue()
		} else if lost {
			e.restLocked(c, asked, asked.count, lease)
		}
		out = appendFailure(nil, err)
	case a.Held:
		if h != nil && h.fence == a.Fence && h.counted(a.Holds, sentAt) {
			h.ttl = lease
			h.promiseLocked(sentAt)
			if !h.lease.Resume(sentAt, h.entry()) {
				h.lease = e.dog.Track(h.entry(), sentAt)
			}
		} else if h != nil {
			h.lease.Continue()
		}
		if out = redcon.AppendInt(nil, 1); h != nil {
			c.lost.Forget(k.key, k.owner)
		} else {
			if lost && asked.fence == a.Fence { // nobody watches the lease
				e.restLocked(c, asked, a.Holds, lease)
			}
			out = e.tellLostLocked(c, k, lost, out)
		}
	case h != nil && !h.givenUp():
		told = e.loseLocked(h, watchdog.ReasonGone, c)
		out = lostLease()
	case h != nil:
		e.dropLocked(h)
		out = notHeld()
	default:
		out = e.tellLostLocked(c, k, lost, notHeld())
	}
	e.mu.Unlock()
	e.tell(told)
	return out
}

func (e *Engine) startForce(s Caller, cmd grammar.Command) {
	e.script(s.Session, Call{
		Call:      script.Force{Key: cmd.Key}.Call(),
		Pipelined: true,
		Done: func(reply resp.Value, err error) []byte {
			a, err := decoded(reply, err, script.DecodeForced)
			switch {
			case err != nil:
				return appendFailure(nil, err)
			case !a.Held:
				return redcon.AppendInt(nil, 0)
			}
			e.forced(grantOf{holdKey{cmd.Key, a.Owner}, a.Fence})
			return redcon.AppendInt(nil, 1)
		},
	})
}

// forced tells the holder of the grant that was ended, if it is here, and wakes the waiters here. Holders elsewhere learn it
// from their next renewal. The message of the script may have been faster than its answer: the lock may be somebody else's by now.
func (e *Engine) forced(g grantOf) {
	e.mu.Lock()
	told := e.endGrantLocked(g)
	if g.fence != 0 {
		e.forcedOff[g] = struct{}{} // it, or more of it, may be on its way to somebody here
		e.clock.AfterFunc(redislink.AnswerLimit, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.forcedOff, g)
		})
	}
	e.waits.wakeLocked(g.key)
	e.mu.Unlock()
	e.tell(told)
}

// forcedOffLocked ends a hold whose grant was ended by FORCEUNLOCK before it was known here.
func (e *Engine) forcedOffLocked(g grantOf) *loss {
	if _, forced := e.forcedOff[g]; !forced {
		return nil
	}
	return e.endGrantLocked(g)
}

func (e *Engine) endGrantLocked(g grantOf) *loss {
	h := e.holds[g.holdKey]
	if h == nil || h.fence != g.fence {
		return nil
	}
	return e.loseLocked(h, ReasonForced, nil)
}
