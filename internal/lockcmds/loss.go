package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/announce"
	"lockproxy/internal/watchdog"
)

// ReasonForced is the reason of a loss by FORCEUNLOCK through this proxy; the watchdog knows the others.
const ReasonForced watchdog.Reason = "forced"

// LossReasons lists what Events.Lost may be given.
func LossReasons() []string {
	return []string{
		string(watchdog.ReasonGone), string(watchdog.ReasonDeadline), string(watchdog.ReasonExpired), string(watchdog.ReasonMaxHold), string(ReasonForced),
	}
}

// onLost is the watchdog's verdict. It is called at most once per lease.
func (e *Engine) onLost(l *watchdog.Lease, reason watchdog.Reason) {
	defer e.failStop()
	entry := l.Entry()
	e.mu.Lock()
	h := e.holds[holdKey{entry.Key, entry.Owner}]
	if h == nil || h.lease != l {
		e.mu.Unlock()
		return
	}
	private := len(h.holders) == 1 && h.owner == h.holders[0].c.owner
	if private && h.extending == 0 && reason != watchdog.ReasonGone {
		// Our clock, not Redis, says that the lease is over. The holder is told, so nobody needs what may be left of it.
		e.restLocked(h.holders[0].c, h, h.count, h.ttl)
	}
	told := e.loseLocked(h, reason, nil)
	e.waits.wakeLocked(entry.Key)
	e.mu.Unlock()
	e.tell(told)
}

// restLocked gives back what Redis may have left, for as long as lease, of a hold that was lost by our clock: so many holds of the
// session's own owner, of an explicit one not more than the parts of the sessions here.
func (e *Engine) restLocked(c *client, h *hold, left int64, lease time.Duration) {
	private := h.owner == c.owner
	switch {
	case private && c.asks(h.holdKey):
		// That acquire may be granted more of it. It gives all of that back, or if it comes to nothing:
		c.ask.rest = rest{grantOf{h.holdKey, h.fence}, left - h.releasing, max(lease, e.opts.Lease)}
		return
	case private:
		left -= h.releasing // they are answered later
	default: // releases on their way have been taken off the parts
		left = min(left, h.parts)
		h.parts = 0
	}
	if left > 0 {
		e.giveBackLocked(grantOf{h.holdKey, h.fence}, left, private, max(lease, e.opts.Lease))
	}
}

// rest is so many holds of a lost grant, to be given back for as long as lease.
type rest struct {
	grantOf
	holds int64
	lease time.Duration
}

// loss is what there is to be told about one lost hold.
type loss struct {
	key    string
	fence  int64
	reason watchdog.Reason
	to     []*client
}

// tell announces a loss: to metrics, to the log, to the holders by a push, to everybody by a channel. nil: there is nothing to tell. It
// leaves the work to a job. Requires no locks.
func (e *Engine) tell(l *loss) {
	if l == nil {
		return
	}
	if f := e.opts.Events.Lost; f != nil {
		f(string(l.reason))
	}
	e.losses.Tell(announce.Loss{Key: l.key, Fence: l.fence, Reason: string(l.reason), Push: func(push []byte) {
		for _, c := range l.to {
			e.do(c.s, func() { c.s.Push(push) })
		}
	}})
}

// loseLocked ends a hold that is no longer ours and returns whom to tell. The session that learns it by its own reply
// is left out.
func (e *Engine) loseLocked(h *hold, reason watchdog.Reason, except *client) *loss {
	h.lost = true
	if h.givenUp() && reason != ReasonForced {
		e.dropLocked(h)
		return nil // the answers to the releases say whether they came in time
	}
	told := &loss{key: h.key, fence: h.fence, reason: reason}
	for _, o := range h.holders {
		if o.c == except {
			continue
		}
		o.c.lost.Add(h.key, h.owner, h.fence)
		told.to = append(told.to, o.c)
	}
	e.dropLocked(h)
	return told
}
