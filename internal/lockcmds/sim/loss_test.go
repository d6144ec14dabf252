package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// What may be lost when servers change their parts, and what may not.

// authority reports whether a server is the one that counts for a lock, or becomes it.
func (r *rules) authority(s *server, key string) bool {
	slot := &r.w.slots[r.w.slotOf(key)]
	return slot.shard.primary == s || slot.to != nil && slot.to.primary == s
}

// counting reports whether a server counts for any lock.
func (r *rules) counting(s *server) bool {
	return s.shard.primary == s
}

// known reports whether a server that counts knows a grant, or knew it until it ended.
func (r *rules) known(g grant) bool {
	slot := &r.w.slots[r.w.slotOf(g.key)]
	return slot.shard.primary.knows(g) || slot.to != nil && slot.to.primary.knows(g)
}

// forgotten notes that a server loses its counters of fences. The clock of the next server that grants a lock may be
// behind.
func (r *rules) forgotten(s *server) {
	for i, fence := range s.fences {
		r.flushed[i] = max(r.flushed[i], fence)
	}
}

// back reports whether a fence is not larger than an earlier one, though the counter was not lost.
func (r *rules) back(key string, before, fence int64) bool {
	return fence <= before && before > *r.flushed.of(key)
}

// doomed notes what a primary has done that does not count any more.
func (r *rules) doomed(key string, before, after *picture) {
	for _, part := range after.parts {
		if was, ok := before.part(part.owner); !ok || part.expire > was.expire {
			r.shorter[grant{key, part.fence}] = true
		}
	}
}

// promoted judges what was lost with a primary.
func (r *rules) promoted(old, to *server) {
	w := r.w
	for _, key := range r.keys {
		if w.slots[w.slotOf(key)].shard != to.shard {
			// The move of a key away was lost with the old primary. If the slot comes back, so does what was left.
			r.torn = r.torn || len(old.queue(key)) == 0 && len(to.queue(key)) > 0
			continue
		}
		before, after := old.picture(key), to.picture(key)
		if !before.equal(&after) || !slices.Equal(old.queue(key), to.queue(key)) {
			*r.lossy.of(key), r.torn = true, true
		}
		for _, part := range before.parts {
			if now, ok := after.part(part.owner); !ok || now.fence != part.fence || now.expire < part.expire {
				r.shorter[grant{key, part.fence}] = true
			}
		}
		r.replaced(key)
	}
	if w.permits != nil && w.slots[w.slotOf(permitKey)].shard == to.shard {
		w.permits.promoted(old, to)
		r.replaced(permitKey)
	}
}

// replaced notes that a lock is at another primary.
func (r *rules) replaced(key string) {
	*r.chains.of(key) = chain{}
	if !r.w.smooth { // else nothing is lost, and no waiter waits for the end of a lease
		*r.short.of(key) = max(*r.short.of(key), r.w.now+lease)
	}
	r.unsureAll(key)
}

// unsureAll judges all holds of a lock on which clients count.
func (r *rules) unsureAll(key string) {
	for _, c := range r.w.clients {
		for _, b := range c.beliefs(key) {
			if b != nil && !c.ended {
				r.unsure(c, key, b)
			}
		}
	}
}

// moved notes that a slot has got to another shard, whose replicas may not have the lock yet.
func (r *rules) moved(key string) {
	*r.chains.of(key) = chain{}
	*r.movedAt.of(key) = r.w.now
	for _, c := range r.w.clients {
		for _, b := range c.beliefs(key) {
			if b != nil {
				b.synced = false
			}
		}
	}
}

// unsure judges a hold that a client counts on, at a moment when the server that counts may not know it, or may end it
// earlier. Then its client has to learn of that soon. If all replicas had the grant when the client was told, it cannot
// be.
func (r *rules) unsure(c *client, key string, b *belief) {
	switch g := (grant{key, b.fence}); {
	case r.known(g) && !r.shorter[g]:
	case r.known(g):
		r.unknown = append(r.unknown, debt{c: c, key: key, fence: b.fence, due: r.w.now})
	case b.synced:
		r.w.fail("a grant that all replicas had was lost", "%s of %s, fence %d", key, c, b.fence)
	case r.w.smooth:
		r.w.fail("a planned change lost a grant", "%s of %s, fence %d", key, c, b.fence)
	default:
		r.unknown = append(r.unknown, debt{c: c, key: key, fence: b.fence, due: r.w.now})
	}
}

const (
	// renewLimit is the time in which a renewal is answered by a server that can be reached, and its answer is told: a
	// third of the lease, a pause after a failure, the way, and twice the wait for messages that may explain a loss.
	renewLimit = lease/3 + lease/10 + 800*time.Millisecond
	// tellTime is what a loss takes from the answer to a renewal to its client, with twice the delay of the table.
	tellTime = 130 * time.Millisecond
	// chosenLimit is longer than all leases that clients choose in histories.
	chosenLimit = 6 * time.Second
)

// learned judges that clients learn of lost grants by the next renewal.
func (r *rules) learned() {
	w := r.w
	left := r.unknown[:0]
	for _, d := range r.unknown {
		c, p := d.c, d.c.p
		b := c.belief(d.key, d.fence)
		g := grant{d.key, d.fence}
		here := b != nil && r.has(g)
		if b == nil || c.ended || p.killed || here && !r.shorter[g] {
			continue
		}
		left = append(left, d)
		slot := w.slotOf(d.key)
		at := w.slots[slot].shard.primary
		halfMoved := w.slots[slot].to != nil // renewals are TRYAGAIN: they name two keys
		if here || b.releasing || b.vague || c.asks(d.key) || at.hides(p) || halfMoved {
			left[len(left)-1].due = w.now
			continue
		}
		own := p.link.own.to(at)
		since := max(d.due, p.sawAt, own.since, p.pausedUntil, at.halted, at.became)
		waits := max(own.there, own.back)+tellTime > w.now // something is on its way, and may be so for long
		limit := renewLimit
		if b.chosen {
			limit = chosenLimit
		}
		if p.view[slot] == at && own.open() && !waits && w.now-since > limit {
			w.fail("a lost grant was not told by the next renewal", "%s of %s, fence %d", d.key, c, d.fence)
		}
	}
	r.unknown = left
}

// counts judges a grant that a client has just been told of.
func (r *rules) counts(c *client, s *slot, b *belief) {
	w := r.w
	if w.servers[0].logs && s.cmd.Sync > 0 {
		have := 0
		for _, o := range w.servers {
			if o.had(grant{s.cmd.Key, b.fence}) {
				have++
			}
		}
		if have <= s.cmd.Sync {
			w.fail("a grant was told before its replicas had it", "%s of %s, fence %d: %d of %d have it", s.cmd.Key, c, b.fence, have-1, s.cmd.Sync)
		}
	}
	b.leased(s)
	b.chosen = b.chosen || strings.Contains(s.line, " PX ") || strings.Contains(s.line, " MAXHOLD ")
	if w.shape == single {
		return
	}
	sh := w.slots[w.slotOf(s.cmd.Key)].shard
	b.synced = b.synced || s.cmd.Sync >= len(sh.servers)-1 && !w.moving && *r.movedAt.of(s.cmd.Key) < max(s.sent, r.made[grant{s.cmd.Key, b.fence}])
	r.unsure(c, s.cmd.Key, b)
}

// replied judges that clients of a cluster see no change that was planned.
func (r *rules) replied(c *client, s *slot, v resp.Value) {
	w := r.w
	if !w.smooth || w.shape != cluster || !v.IsError() {
		return
	}
	code, _, _ := strings.Cut(string(v.Str), " ")
	switch code {
	case "TRYAGAIN":
		if s.cmd.Verb == grammar.TryLock || strings.Contains(s.line, " WAIT ") { // it has no time to wait for a slot
			return
		}
	case "NOTHELD", "LOSTLEASE", "NOTSYNCED", "DEADLOCK":
		return
	case "WRONGTYPE": // permits.received judges it
		if w.permits != nil {
			return
		}
	}
	w.fail("a planned change was seen by a client", "%s: %s: %s", c, s.line, v.Str)
}
