package lockcmds

import (
	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/script"
)

// A session of a named owner has a field in the lock's hash, also if it has only released a hold of another session. The field tells copies
// of the session's calls from the calls themselves. When the session has no holds and no copy can come any more, the field goes. Otherwise
// the hash would grow as long as the lock is held, with each session that uses it.

// mostFields bounds how many fields of one session are being removed at a time, because a client chooses how many releases it sends. The
// field of a release beyond that stays until the session's next release of the lock, or until the lock is free.
const mostFields = 128

// fieldLocked is the removal of the field that a release has left behind, with holds of other sessions; ok is false: the field stays.
// fence is of the grant.
func (r *release) fieldLocked(fence int64) (field calls.Rollback, ok bool) {
	c, e := r.c, r.e
	part := script.Part{Owner: r.Key.Owner, Session: c.Name, Request: r.request, Fence: fence}
	switch {
	case !r.named() || c.Doubted || c.removing >= mostFields:
		return field, false
	case !c.ended && r.Holds > 0:
		return field, false
	case c.ended && c.Copies():
		return field, false // the answer to another release follows
	case c.ended:
		part.Request = e.nextRequest() // the end of the session may have written the field too
	}
	// Of a session that goes on, the number is that of the release: the field stays if a later call has written it.
	c.removing++
	return calls.Rollback{
		Drop: script.Drop{Key: r.Key.Lock, Part: part, Grace: -1}, Limit: e.opts.Lease,
		Done: func(bool) {
			e.mu.Lock()
			c.removing--
			e.mu.Unlock()
		},
	}, true
}

// doubt notes that the answer to an acquire or a release of the session was lost: a copy may reach Redis at any time, so the session's
// fields stay. Requires no Engine.mu.
func (e *Engine) doubt(c *client) {
	e.mu.Lock()
	c.Doubted = true
	e.mu.Unlock()
}
