package lockcmds

import (
	"context"
	"time"
)

// An explicit owner may hold a lock through several proxies at once, and Redis has one count for all of them. Each
// engine counts its own part, so that the end of a session here takes nothing off that was acquired elsewhere: grants
// here minus releases here. It counts too little when an answer was lost: what it leaves ends with the lease. It counts too much
// when the owner gives back through one proxy what it acquired through another, and goes on acquiring there: then the end of the
// last session here takes as many holds off as were acquired here.

// remainder is this engine's part in a hold whose last session here has ended: the owner may come back for it while
// the lease goes on.
type remainder struct {
	fence, own int64
}

// keepLocked remembers the part of a hold that was dropped with its last session. That of a long fixed lease is
// forgotten after a while, so that sessions that come and go cannot pile up here.
func (e *Engine) keepLocked(h *hold) {
	left := min(time.Until(h.lease.Deadline()), e.opts.Lease)
	if !h.explicit || h.own == 0 || left <= 0 {
		return
	}
	r := &remainder{fence: h.fence, own: h.own}
	e.remainders[h.holdKey] = r
	time.AfterFunc(left, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.remainders[h.holdKey] == r {
			delete(e.remainders, h.holdKey)
		}
	})
}

// takeLocked returns what the owner has left here by the grant with this fence, and forgets it.
func (e *Engine) takeLocked(k holdKey, fence int64) int64 {
	r := e.remainders[k]
	delete(e.remainders, k)
	if r == nil || r.fence != fence {
		return 0
	}
	return r.own
}

// spendLocked takes one hold off our part, before the release of the grant with that fence, 0: any, is sent: should the session
// end meanwhile, that one is cared for. It returns the fence of the hold, 0 if we have no part in any.
func (e *Engine) spendLocked(k holdKey, fence int64) int64 {
	if h := e.holds[k]; h != nil && h.own > 0 && (fence == 0 || fence == h.fence) {
		h.own--
		return h.fence
	}
	if r := e.remainders[k]; e.holds[k] == nil && r != nil && r.own > 0 && (fence == 0 || fence == r.fence) {
		r.own--
		return r.fence
	}
	return 0
}

// refundLocked is for a release that did not happen.
func (e *Engine) refundLocked(k holdKey, fence int64) {
	if h := e.holds[k]; h != nil && h.fence == fence {
		h.own++
	} else if r := e.remainders[k]; r != nil && r.fence == fence {
		r.own++
	}
}

// applyGrace shortens or releases what is left in Redis of a dropped hold, after a renewal that may be on its way: of
// a session's own owner all of it, of an explicit one only our part.
func (e *Engine) applyGrace(h *hold, grace time.Duration) {
	holds := int64(0) // all
	if h.explicit {
		if holds = h.own; holds == 0 {
			return
		}
	}
	h.lease.Pause(func() {
		e.persist(cleanup{
			what: "apply grace", key: h.key, limit: h.ttl,
			once: holds > 0 && grace == 0, // done twice it would take off what the owner holds by others
			task: func(ctx context.Context) error {
				_, err := e.runAs(ctx, h.by, e.scripts.grace, []string{h.key, channelOf(h.key), queueOf(h.key)},
					[]string{h.owner, itoa(h.fence), millis(grace), publish, itoa(holds), "0"})
				return err
			},
		})
	})
}
