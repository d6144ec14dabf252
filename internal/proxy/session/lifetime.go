package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// judgePause is how much later than at the end of its time a subscriber is judged for which no more messages come.
// Redis looks once a second.
const judgePause = time.Second

// New makes the session of a client.
func New(from clients.Origin, e *Proxy, h engine.Client) *Session {
	s := &Session{
		Origin: from, owner: clients.Account(from.Addr), proxy: e, host: h,
	}
	if v := e.Upstream.View(); v != nil {
		s.way = cluster.New(host{s}, e.Upstream, v)
	} else {
		s.way = single{s}
	}
	s.out.open(e, func(limit metrics.Reason, unread int) {
		if s.life < ended {
			e.Closed(limit, s.Addr, unread)
			s.end()
		}
	}, func(d time.Duration) { time.AfterFunc(d+judgePause, func() { s.Do(s.out.judge) }) })
	s.active = e.Clock.Load() // a drain takes it for silent only after a while
	s.guard, s.ident = resp.NewGuard(), e.FirstIdentity()
	s.doubt()
	s.bill.Open(e.Budget, s)
	if e.Upstream.Tight() {
		s.weight.Window = firstWindow
	}
	return s
}

// Hungup says that the client's connection is gone.
func (s *Session) Hungup() {
	s.mu.Lock()
	defer s.exit()
	s.end()
}

// EOF says that the client has ended its side, although it may still read. As in Redis, its commands run and are
// answered up to the first one that must wait for other clients. It returns false if the session has ended.
func (s *Session) EOF() bool {
	s.mu.Lock()
	defer s.exit()
	s.side = sideEnded
	s.atEOF()
	return s.life < ended
}

// Leaving says that the client has ended its side before all its bytes have been read. Reading continues after
// Client.Resume. It returns false if the session has ended: a client that waits for other clients waits no longer, even
// if commands follow.
func (s *Session) Leaving() bool {
	s.mu.Lock()
	defer s.exit()
	s.side = max(s.side, sideEnding)
	s.atEOF()
	return s.life < ended
}

// atEOF ends a session whose client has ended its side, when no command is left to run. A wait for other clients
// is withdrawn with everything behind it: no client is left to use a lock or an element of a list.
func (s *Session) atEOF() {
	if s.side == sideEnding && s.awaitsOthers() {
		s.side = sideEnded // commands that have not been read would not run
	}
	if s.side != sideEnded || s.out.Gone() {
		return
	}
	switch {
	case s.streaming():
		s.CutOff() // the large command stays incomplete
	case s.waitsForLock(), s.wait == waitPin && !s.hasty:
		// On a direct connection the command would be waiting by now, or have been answered. The replies before it are
		// written.
		s.CutOff()
		s.afterUnlock = append(s.afterUnlock, s.host.Flush)
	case s.pinWaits():
		s.pin.conn.CloseWrite() // as below, although more commands are to follow
	case !s.ready():
	case s.pin != nil && (s.out.Slots.Due() > 0 || s.pin.mode == readsRaw):
		// Only Redis knows whether this is a command that waits. It sees the end as if the client were connected there:
		// it executes what it has got, answers what it can, and closes.
		s.pin.conn.CloseWrite()
	default:
		s.goodbye(nil)
	}
}

// waitsForLock reports whether an acquire waits, and all commands before it have been answered.
func (s *Session) waitsForLock() bool { return s.wait == waitLock && s.out.Slots.Due() == 0 }

// awaitsOthers reports whether the session waits for an action of other clients.
func (s *Session) awaitsOthers() bool {
	return s.waitsForLock() || s.wait == waitPin && !s.hasty || s.pinWaits()
}

// Drain asks the client to leave, and closes the connection at a quiet moment from now on. Until then the session works
// as before. within is the time that it has. Drain may be called again: a client that has sent nothing for a while is
// closed then; now: also one that has just sent. It reports whether the connection is about to close.
func (s *Session) Drain(within time.Duration, now bool) bool {
	s.mu.Lock()
	defer s.exit()
	if !s.out.Gone() && s.parting.ask(!s.ready() || s.out.Slots.Due() > 0 || s.in.len() > 0) &&
		s.ident.Proto == 3 && (s.pin == nil || s.pin.mode != readsRaw) {
		s.out.push(resp.AppendDraining(nil, within))
	}
	if now || s.proxy.Clock.Load()-s.active >= drainSilence {
		s.leaveIfQuiet()
	}
	return s.over()
}

// leaveIfQuiet closes the connection of a client that is asked to leave, if this is a quiet moment: nothing is
// outstanding, no command has come in part, and the client has no lock, no wait, and no connection to Redis of its own.
func (s *Session) leaveIfQuiet() {
	if !s.ready() || s.out.Slots.Due() > 0 {
		return
	}
	if s.in.len() > 0 || s.streaming() || s.host.Unread() {
		return
	}
	if s.pin != nil || s.way.Bytes() > 0 {
		return
	}
	if s.leaveEngines(); len(s.engines) > 0 {
		return
	}
	s.goodbye(nil)
	s.afterUnlock = append(s.afterUnlock, s.host.Flush)
}

// releaseAll ends everything that the session has besides its output: waits, locks and connections.
func (s *Session) releaseAll() {
	s.releaseWork()
	s.releaseLocks()
}

// releaseWork is releaseAll but for locks.
func (s *Session) releaseWork() {
	s.out.Slots.Forget()
	s.in.forget()
	if s.streaming() {
		s.large.timer.Stop()
	}
	s.way.Drop()
	s.repeated = nil
	if pin := s.dropConnections(); pin != nil {
		pin.abandon()
	}
}

// endLocks ends the locks of a session that goes on as another client: its next acquires have another owner.
func (s *Session) endLocks() {
	for _, set := range s.losses {
		set.Clear()
	}
	s.releaseLocks()
	s.token = ""
}

// releaseLocks leaves the lock engines.
func (s *Session) releaseLocks() {
	left := 0
	for _, e := range s.engines {
		if s.forsaken {
			left += e.Forsaken(s.ID)
		} else {
			e.Ended(s.ID)
		}
		s.proxy.Locks.Leave(e)
	}
	s.engines, s.losses = nil, nil
	if left > 0 {
		s.proxy.LocksLeft(s.Addr, left)
	}
}
