package sim

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

// kept judges a rollback for a client that has gone: the client may count on its lease until that ends.
func (r *rules) kept(at *server, p *proxy, key string, was stake, after *picture) {
	i := slices.IndexFunc(r.w.all, func(c *client) bool { return c.ended && c.p == p && c.owner() == who(was.owner) })
	if i < 0 {
		return
	}
	c := r.w.all[i]
	b := c.belief(key, was.fence)
	if b == nil || b.bounded || b.releasing || b.vague || b.released || *c.blurred.of(key) || *r.upset.of(key) >= r.made[grant{key, b.fence}] {
		return
	}
	until := b.until
	if s := c.current; s != nil && s.cmd.Key == key && (acquires(s.cmd.Verb) || s.cmd.Verb == grammar.ExtendLock) {
		until = min(until, s.sent+s.lease()) // it may have set a shorter lease
	}
	var left time.Duration
	now, held := after.part(was.owner)
	if held {
		left = time.Duration(now.expire-at.ms()) * time.Millisecond
	}
	if now.expire < was.expire && r.w.now+left+time.Millisecond < until {
		r.w.fail("a lease was cut short after the end of its client", "%s of %s, fence %d: %v before its end", key, c, b.fence, until-r.w.now-left)
	}
}

// promised judges that what a client holds for itself lasts as long as the last reply has said, unless the client has
// asked for something else since, or somebody from outside has ended it.
func (r *rules) promised() {
	w := r.w
	for _, c := range w.clients {
		if c.ended || c.p.killed || !c.holdsAny() {
			continue
		}
		for _, key := range locks {
			for _, b := range c.beliefs(key) {
				if b == nil || w.now+2*time.Millisecond >= b.until || b.vague || b.releasing || b.released || c.asks(key) {
					continue
				}
				g := grant{key, b.fence}
				_, handled := r.handled[g]
				if handled || w.moving || *c.blurred.of(key) || *r.lossy.of(key) || r.shorter[g] || !r.known(g) || *r.upset.of(key) != -never {
					continue
				}
				if w.permits != nil && w.permits.forgotten[b.fence] { // its key was lost with a primary
					continue
				}
				if !r.has(g) && w.now+2*skew*time.Millisecond < b.until {
					w.fail("a lease ended before the time that its client was told", "%s of %s, fence %d: %v before it", key, c, b.fence, b.until-w.now)
				}
			}
		}
	}
}

// lasting is the lease of a lock that several sessions hold for one owner, as the latest call has set it.
type lasting struct {
	fence int64
	by    string        // the session that has sent the call
	until time.Duration // what its client was told; 0: it was not
}

// lasts notes a call for a named owner, and judges a rollback: what one session gives up ends no lease of which another
// one was told. The owner has the lock by that fence behind the call, until expire; 0: it does not.
func (r *rules) lasts(at *server, name string, args []string, key string, fence, expire int64) {
	k := named{key, args[0]}
	session := sessionOf(args[fieldAt[name]])
	switch last := r.lasting[k]; {
	case name == "drop":
		left := max(0, last.until-r.w.now-time.Millisecond)
		if left == 0 || last.by == session || r.w.shape != single || *r.upset.of(key) != -never {
			return
		}
		if fence == last.fence && time.Duration(expire-at.ms())*time.Millisecond >= left {
			return
		}
		gone := func(c *client) bool { return c.owner() == session && (c.ended || c.asks(key)) }
		if !slices.ContainsFunc(r.w.all, gone) { // else GRACE ends it, or an acquire in progress has lost it
			r.w.fail("a lease ended with an earlier one of its owner", "%s of %s, which %s was told of: %v before it", key, args[0], last.by, left)
		}
	case name == "release" || name == "handover" || fence == 0:
		delete(r.lasting, k)
	default:
		r.lasting[k] = lasting{fence: fence, by: session}
	}
}

// told notes that a client was told how long an owner holds a lock.
func (r *rules) told(c *client, s *slot, k named) {
	if last, ok := r.lasting[k]; ok && last.by == c.owner() {
		last.until = s.sent + s.lease()
		r.lasting[k] = last
	}
}
