package lockcmds

import (
	"lockproxy/internal/lockcmds/announce"
	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/script"
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
	defer e.guard.Stop()
	entry := l.Entry()
	e.mu.Lock()
	h := e.holds[holdKey{entry.Key, entry.Owner}]
	if h == nil || h.lease != l {
		e.mu.Unlock()
		return
	}
	var rest []calls.Rollback
	if reason != watchdog.ReasonGone {
		// Our clock, not Redis, says that the lease is over. The sessions are told, so what Redis may have left of their holds is of no
		// use to them.
		rest = e.staleLocked(h)
	}
	told := e.loseLocked(h, reason, nil)
	e.waits.wakeLocked(entry.Key)
	e.mu.Unlock()
	e.tell(told)
	for _, r := range rest {
		e.calls.RollBack(r)
	}
}

// staleLocked is the rollbacks of a hold that the sessions here have lost, for as long as Redis may have something of it.
func (e *Engine) staleLocked(h *hold) []calls.Rollback {
	all := make([]calls.Rollback, 0, len(h.holders))
	for _, o := range h.holders {
		part := e.partOf(o.c, h.owner)
		part.Fence = h.fence
		all = append(all, calls.Rollback{Drop: script.Drop{Key: h.key, Part: part}, By: h.by.Node(h.key), Limit: max(h.ttl, e.opts.Lease)})
	}
	return all
}

// loss is the report of one lost hold.
type loss struct {
	key    string
	fence  int64
	reason watchdog.Reason
	to     []*client
}

// tell announces a loss: to metrics, to the log, to the holders by a push, to subscribers by a channel. nil: there is nothing to tell. It
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
			e.guard.Do(c.s, func() { c.s.Push(push) })
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
