package sim

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

// kept judges a rollback for a client that has gone: the client may count on its lease until that ends, and keeps the
// holds of which it was told.
func (r *rules) kept(at *server, p *proxy, name, key string, before, after holder) {
	if name != "drop" {
		return
	}
	i := slices.IndexFunc(r.w.all, func(c *client) bool { return c.ended && c.p == p && c.owner() == before.owner })
	if i < 0 {
		return
	}
	c := r.w.all[i]
	b := *c.holds.of(key)
	if b == nil || b.fence != before.fence || b.bounded || b.releasing || b.vague || b.released || *c.blurred.of(key) || *r.upset.of(key) >= r.made[grant{key, b.fence}] {
		return
	}
	until := b.until
	if s := c.current; s != nil && s.cmd.Key == key && (acquires(s.cmd.Verb) || s.cmd.Verb == grammar.ExtendLock) {
		until = min(until, s.sent+s.lease()) // it may have set a shorter lease
	}
	var left time.Duration
	if after.exists {
		left = time.Duration(after.expire-at.ms()) * time.Millisecond
	}
	if after.exists && after.holds != b.count {
		r.w.fail("a rollback kept other holds than the client has", "%s of %s, fence %d: %d, not %d", key, c, b.fence, after.holds, b.count)
	}
	if after.expire < before.expire && r.w.now+left+time.Millisecond < until {
		r.w.fail("a lease was cut short after the end of its client", "%s of %s, fence %d: %v before its end", key, c, b.fence, until-r.w.now-left)
	}
}
