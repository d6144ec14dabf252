package session

import (
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
)

// This file says what becomes of a session while Redis cannot be reached. Its commands are answered, or its connection
// closes, as that to a dying Redis would: client libraries know how to live with that, and with no error reply.
//
//   - A command that was sent and will not be answered closes the connection at once (lose).
//   - A command that was not sent waits in the lane or pin. After failover-wait the connection closes, a moment later
//     than the command would have been refused on a direct connection, so that no library tries again without a pause.
//     A session that holds locks waits on for as long as it holds one.
//   - A client that is new closes at its first command, after that moment, unless Redis has answered by then. It asks
//     again over a new connection.
//   - If Redis itself refuses the connection for the commands, its words are their reply.
//
// In front of a cluster, parcels wait by themselves (package cluster): another server may have their slots by then.

// reach is whether the session has Redis, as far as it knows.
type reach uint8

const (
	unmet   reach = iota // the client is new: Redis has answered nothing yet
	met                  // Redis has answered
	missing              // an attempt to connect for a command of the session has failed since; overdue follows
)

// The connection closes between leastPause and mostPause behind a command that is given up.
const leastPause, mostPause = 300 * time.Millisecond, time.Second

// Closes fall on multiples of beat, so that those of many clients cost few wake-ups.
const beat = 50 * time.Millisecond

// closeAfter is the latest of three random times, so that many clients that come back at once make fewer connections.
func closeAfter() time.Duration {
	const span = mostPause - leastPause - beat
	return leastPause + max(rand.N(span), rand.N(span), rand.N(span))
}

// reached notes that Redis, or the lock engine in its place, has answered.
func (s *Session) reached() {
	if s.life < doomed {
		s.reach = met
		s.endWait()
	}
}

func (s *Session) endWait() {
	if s.late != nil {
		s.late.Stop()
		s.late = nil
	}
}

// miss notes that an attempt to connect for a command of the session has failed.
func (s *Session) miss() {
	limit := closeAfter()
	switch s.reach {
	case missing:
		return
	case unmet: // a new client
	case met:
		limit += s.proxy.Upstream.FailoverWait()
	}
	s.reach = missing
	s.await(limit)
}

// waits reports whether commands of the session that were not sent wait for the next connection. failed: an attempt to
// connect for them has failed.
func (s *Session) waits(failed bool) bool {
	switch {
	case s.out.Gone():
		return false
	case failed && s.way.PlacesEach():
		return false
	case failed:
		s.miss()
	}
	return true
}

// await has overdue called at the first beat after a time, unless Redis answers before.
func (s *Session) await(d time.Duration) {
	d += beat - time.Duration(time.Now().Add(d).UnixNano())%beat
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.host.Flush()
		defer s.exit()
		if s.late == t {
			s.overdue()
		}
	})
	s.late = t
}

// overdue closes the connection at last: when the commands of the session have waited for Redis for too long, or one
// has been given up. But not while the session holds a lock.
func (s *Session) overdue() {
	switch {
	case s.holds():
		s.await(closeAfter())
	case s.life == doomed:
		s.life = cutOff
		s.releaseLocks()
	default:
		s.abandon()
	}
}

// stranded reports whether the client is new, and Redis cannot be reached.
func (s *Session) stranded() bool { return s.reach == unmet && s.proxy.Upstream.Away() }

// holds reports whether the session holds a lock.
func (s *Session) holds() bool {
	for _, e := range s.engines {
		if e.Holding(s.ID) > 0 {
			return true
		}
	}
	return false
}

// giveUp closes the connection after a pause: a command of the session is not carried out, because Redis cannot be
// reached. The client gets the replies so far. Its locks are kept until their leases end.
func (s *Session) giveUp() {
	if s.out.Gone() {
		return
	}
	s.wait, s.life, s.forsaken = waitNone, doomed, true
	s.proxy.Counters.Closed[metrics.Outage].Add(1)
	s.out.finish()
	s.releaseWork()
	if !s.holds() {
		s.releaseLocks()
	}
	s.await(closeAfter())
}

// abandon is CutOff because of Redis: the client has not gone, so its locks keep the rest of their leases, whatever
// GRACE says.
func (s *Session) abandon() {
	if !s.out.Gone() {
		s.forsaken = true
		s.proxy.Counters.Closed[metrics.Outage].Add(1)
		s.CutOff()
	}
}

// notCarriedOut ends a command that was certainly not carried out, because Redis cannot be reached: it has its reply,
// or the connection closes.
func (s *Session) notCarriedOut(r *request) bool {
	if words := s.Refusal(); words != nil {
		return s.answer(r, words)
	}
	s.giveUp()
	return true
}

// refuse gives the proxy's own refusal. If the client may have sent commands already that mean something else without
// the refused one, the connection closes behind it.
func (s *Session) refuse(r *request, words []byte) bool {
	s.answer(r, words)
	if isVital(r) {
		s.goodbye(nil)
	}
	return true
}

// partIfVital returns the function that closes the connection behind the refusal of such a command; nil: it is none.
func (s *Session) partIfVital(r *request) func() {
	if !isVital(r) {
		return nil
	}
	return s.part
}

// part closes the connection behind the outstanding replies.
func (s *Session) part() { s.life = max(s.life, leaving) }

// isVital reports whether the commands behind this one would run in another database, without a watch, or one by one
// instead of in a transaction.
func isVital(r *request) bool {
	switch r.Row.Name {
	case "select", "watch", "multi":
		return true
	}
	return false
}

// outageInfo is the answer to INFO lockproxy while Redis is away. A client that is new need not have logged in.
func (s *Session) outageInfo() []byte {
	if s.reach == unmet || s.proxy.Restricts(s.ident) {
		return s.proxy.Outage(s.ident.Proto)
	}
	return s.info()
}
