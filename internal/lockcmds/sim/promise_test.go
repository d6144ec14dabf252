package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// promise is the lease that a proxy has given to an owner that several sessions are, as Redis keeps it.
type promise struct {
	p     *proxy
	fence int64
	until int64 // by the clock of Redis, in ms
}

// earlier is by how much a proxy's clock may end a lease before Redis does, in ms: the proxy counts from the moment at which it has sent a command.
const earlier = 100

// lapse is the end of a lease by the clock of a proxy.
type lapse struct {
	reason watchdog.Reason
	quiet  bool // no command for the lock was on its way at that proxy, and none was in doubt
}

// promised notes the lease that a proxy has given to such an owner, and judges a rollback that frees the lock. A proxy at which a fixed lease has ended
// does not end a lease that another proxy has given.
func (r *rules) promised(at *server, p *proxy, name string, args []string, key string, before, after holder) {
	now := r.promises.of(key)
	if _, ok := numbered[name]; ok && name != "drop" && after.owner == args[0] && !owned(after.owner) {
		*now = promise{p, after.fence, after.expire}
		return
	}
	if name != "drop" || after.exists || owned(before.owner) || now.fence != before.fence || now.p == p || now.until < at.ms()+earlier {
		return
	}
	// A call on its way may have set the lease anew, and so may a renewal without an answer. The drop says for how long its proxy cannot tell whose lease
	// it is. The end of a session and of MAXHOLD release the lock as always.
	if spare, _ := strconv.ParseInt(args[9], 10, 64); spare > 1 {
		return
	}
	lost := grant{key, before.fence}
	told := func(c *client) bool {
		return c.p == p && !c.ended && args[6] == "{"+c.owner()+"}" && c.lapsed[lost] == lapse{watchdog.ReasonExpired, true}
	}
	if slices.ContainsFunc(r.w.clients, func(c *client) bool { return c.p == p && c.asks(key) }) || !slices.ContainsFunc(r.w.clients, told) {
		return
	}
	r.w.fail("a lease was cut short by another proxy", "%s of %s, fence %d: %d ms before its end", key, before.owner, before.fence, now.until-at.ms())
}

// kept judges a rollback for a client that has gone: the client may count on its lease until that ends, and keeps the holds of which it was told.
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

// spared reports whether an owner may hold a lock although no session does: a proxy has given the lease, and the sessions of another have lost it.
func (r *rules) spared(key string, fence int64) bool {
	given := r.promises.of(key)
	return given.fence == fence && slices.ContainsFunc(r.w.all, func(c *client) bool { return c.p != given.p && c.lapsed[grant{key, fence}].reason != "" })
}
