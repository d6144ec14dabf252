package holds

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/ledger"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// A session of a named owner has a field in the lock's hash. The field tells copies of the session's calls from the calls themselves. When
// the session has no holds and no copy can come any more, the field goes. Otherwise the hash would grow as long as the lock is held, with
// each session that uses it.
//
// A release of a hold of another session has a field of its own, which goes behind its answer. Redis may execute such releases in another
// order than they were sent: by the numbers in one field, the older one would be a copy, and would be answered without a release.

// mostFields bounds how many fields of one session are being removed at a time, because a client chooses how many releases it sends. A
// release beyond that uses the session's field, which stays until the session's next release of a hold of its own, or until the lock is free.
const mostFields = 128

// NameField chooses the field of a release with that number; empty: the owner has one session. anew: it is for a later grant than was known.
// It is for an event of Step. Field ends what it begins. Requires Holds.mu.
func (x *Holds) NameField(s *Session, r *ledger.Release, request int64, anew bool) string {
	switch {
	case r.Key.Owner == s.Name:
		return ""
	case !anew && (r.Lowered || s.removing >= mostFields):
		return s.Name
	}
	s.removing++
	return s.Name + ":" + strconv.FormatInt(request, 10)
}

// Field is the removal of the field that a release has left behind, with holds of other sessions. False: the field stays. part is what the
// release wrote, with the fence of the grant. left: its answer says that holds are left. repeated: an earlier copy of it may still be
// executed. It is for an event of Step. Requires Holds.mu.
func (x *Holds) Field(s *Session, part script.Part, key string, left, repeated bool) (field calls.Rollback, ok bool) {
	switch {
	case part.Session == "":
		return field, false
	case part.Session != s.Name:
		s.removing-- // of NameField
		if !left || repeated {
			return field, false
		}
	case !left || s.Doubted || s.removing >= mostFields:
		return field, false
	case !s.ended && part.Holds > 0:
		return field, false
	case s.ended && s.Copies():
		return field, false // the answer to another release follows
	case s.ended:
		part.Request = x.NextRequest() // the end of the session may have written the field too
	}
	part.Holds = 0
	// Of a session that goes on, the number is that of the release: the field stays if a later call has written it.
	s.removing++
	return calls.Rollback{
		Drop: script.Drop{Key: key, Part: part, Grace: -1}, Limit: x.Lease,
		Done: func(bool) {
			x.mu.Lock()
			s.removing--
			x.mu.Unlock()
		},
	}, true
}
