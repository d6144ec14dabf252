package lockcmds

import (
	"context"
	"time"

	"lockproxy/internal/lockcmds/script"
)

// An explicit owner may hold a lock through several sessions at once, here and at other proxies, and Redis has one count
// for all of them. Each session has a part in it: its acquires minus the releases that are charged to it. The end of a
// session concerns its part alone, so that it makes no difference through which proxy the others hold.
//
// A release is charged to the session that asks for it. If that one has no part, it gives back what another one has
// acquired, and is charged to one that is known here. So a part is too large only if its holds were given back through
// another proxy while the owner went on acquiring there; and too small when an answer was lost: what it leaves ends with
// the lease.

// charge is where a release was taken off.
type charge struct {
	c     *client
	fence int64 // of the hold; 0: it was not taken off anywhere
}

// spendLocked takes one hold off a part, before the release of the grant with that fence, 0: any, is sent: should a session
// end meanwhile, that one is cared for.
func (e *Engine) spendLocked(c *client, k holdKey, fence int64) charge {
	h := e.holds[k]
	if h == nil || fence != 0 && fence != h.fence {
		return charge{}
	}
	var from *holder
	for i := range h.holders {
		o := &h.holders[i]
		if o.part > 0 && (from == nil || o.c == c) {
			from = o
		}
	}
	if from == nil {
		return charge{}
	}
	from.part--
	return charge{from.c, h.fence}
}

// refundLocked is for a release that did not happen.
func (e *Engine) refundLocked(k holdKey, spent charge) {
	h := e.holds[k]
	if h == nil || spent.c == nil || h.fence != spent.fence {
		return
	}
	for i := range h.holders {
		if o := &h.holders[i]; o.c == spent.c {
			o.part++
		}
	}
}

// applyGrace shortens or releases what is left in Redis of a dropped hold, after a renewal that may be on its way: of
// a session's own owner all of it, of an explicit one only that session's part.
func (e *Engine) applyGrace(h *hold, grace time.Duration, part int64) {
	holds := int64(0) // all
	if h.explicit {
		if holds = part; holds == 0 {
			return
		}
	}
	h.lease.Pause(func() {
		e.persist(cleanup{
			what: "apply grace", key: h.key, limit: h.ttl,
			once: holds > 0 && grace == 0, // done twice it would take off what the owner holds by others
			task: func(ctx context.Context) error {
				v, err := e.runAs(ctx, h.by.Node(h.key), script.Grace{Key: h.key, Owner: h.owner, Fence: h.fence, Grace: grace, Holds: holds}.Call())
				_, err = decoded(v, err, script.DecodeGrace)
				return err
			},
		})
	})
}
