package holds

import (
	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/script"
)

// A session of a named owner has a field in the lock's hash, also if it has only released a hold of another session. The field tells copies
// of the session's calls from the calls themselves. When the session has no holds and no copy can come any more, the field goes. Otherwise
// the hash would grow as long as the lock is held, with each session that uses it.

// mostFields bounds how many fields of one session are being removed at a time, because a client chooses how many releases it sends. The
// field of a release beyond that stays until the session's next release of the lock, or until the lock is free.
const mostFields = 128

// Field is the removal of the field that a release has left behind, with holds of other sessions. False: the field stays. request is the
// number of the release, and fence that of the grant. It is for an event of Step. Requires Holds.mu.
func (x *Holds) Field(s *Session, r *ledger.Release, request, fence int64) (field calls.Rollback, ok bool) {
	part := script.Part{Owner: r.Key.Owner, Session: s.Name, Request: request, Fence: fence}
	switch {
	case r.Key.Owner == s.Name || s.Doubted || s.removing >= mostFields:
		return field, false
	case !s.ended && r.Holds > 0:
		return field, false
	case s.ended && s.Copies():
		return field, false // the answer to another release follows
	case s.ended:
		part.Request = x.NextRequest() // the end of the session may have written the field too
	}
	// Of a session that goes on, the number is that of the release: the field stays if a later call has written it.
	s.removing++
	return calls.Rollback{
		Drop: script.Drop{Key: r.Key.Lock, Part: part, Grace: -1}, Limit: x.Lease,
		Done: func(bool) {
			x.mu.Lock()
			s.removing--
			x.mu.Unlock()
		},
	}, true
}

// Doubt notes that the answer to an acquire or a release of the session was lost. A copy may reach Redis at any time, so the session's
// fields stay. Requires no locks.
func (x *Holds) Doubt(s *Session) {
	x.mu.Lock()
	s.Doubted = true
	x.mu.Unlock()
}
