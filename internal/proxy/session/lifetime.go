package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// judgePause is how much later than at the end of its time a subscriber is judged for which no more messages come. Redis looks once a second.
const judgePause = time.Second

// New makes the session of a client.
func New(from clients.Origin, e *shared.Proxy, h Host) *Session {
	s := &Session{
		Origin: from, owner: clients.Account(from.Addr), proxy: e, host: h,
	}
	s.input.s, s.lanes.s, s.pinning.s, s.logins.s, s.profile.s, s.locker.s, s.memory.s = s, s, s, s, s, s, s
	s.Errands.Open((*side)(s), e.Upstream)
	s.ears.Open((*side)(s), e.Upstream)
	s.Output.Open(e, func(limit shared.Limit, unread int) {
		if !s.ended {
			e.Unread(limit, s.Addr, unread)
			s.end()
		}
	}, func(d time.Duration) { time.AfterFunc(d+judgePause, func() { s.side().Do(s.Judge) }) })
	s.active = e.Clock.Load() // a drain takes it for silent only after a while
	s.guard, s.ident = resp.NewGuard(e.Limits().Request), e.FirstIdentity()
	s.guard.Restrict(e.Restricts(s.ident))
	s.bill.Open(e.Budget, s)
	if e.Upstream.Tight() {
		s.Window = FirstWindow
	}
	return s
}

// ExpectFirst closes the client if its first command is not whole at a time; zero: never.
func (s *Session) ExpectFirst(by time.Time) {
	if by.IsZero() {
		return
	}
	time.AfterFunc(time.Until(by), func() {
		s.mu.Lock()
		defer s.exit()
		if !s.begun && !s.ended {
			s.proxy.FirstTimeout(s.Addr)
			s.end()
		}
	})
}

// Hungup says that the client's connection is gone.
func (s *Session) Hungup() {
	s.mu.Lock()
	defer s.exit()
	s.end()
}

// EOF says that the client has ended its side, although it may still read. As in Redis, its commands run and are answered up to
// the first one that must wait for other clients. It returns false if the session has ended.
func (i *input) EOF() bool {
	s := i.s
	s.mu.Lock()
	defer s.exit()
	i.eof = true
	i.atEOF()
	return !s.ended
}

// Leaving says that the client has ended its side before all its bytes have been read. Reading continues after Resume. It returns
// false if the session has ended: a client that waits for other clients waits no longer, even if commands follow.
func (i *input) Leaving() bool {
	s := i.s
	s.mu.Lock()
	defer s.exit()
	i.leaving = true
	i.atEOF()
	return !s.ended
}

// atEOF ends a session whose client has ended its side, when no command is left to run. A wait for other clients
// is withdrawn with everything behind it: no client is left to use a lock or an element of a list.
func (i *input) atEOF() {
	s := i.s
	if i.leaving && i.awaitsOthers() {
		i.eof = true // commands that have not been read would not run
	}
	if !i.eof || s.Gone() {
		return
	}
	switch {
	case i.streaming:
		s.cutOff() // the large command stays incomplete
	case s.wait == waitLock && s.Slots.Due() == 0:
		s.end()
	case s.wait == waitPin && !s.hasty:
		s.end() // on a direct connection it would be waiting by now, or have been answered
	case s.pinWaits():
		s.pin.conn.CloseWrite() // as below, although more commands are to follow
	case s.wait != waitNone:
	case s.pin != nil && (s.Slots.Due() > 0 || s.pin.mode == readsRaw):
		// Only Redis knows whether this is a command that waits. It sees the end as if the client were connected there:
		// it executes what it has got, answers what it can, and closes.
		s.pin.conn.CloseWrite()
	default:
		s.goodbye(nil)
	}
}

// awaitsOthers reports whether the session waits for an action of other clients.
func (i *input) awaitsOthers() bool {
	s := i.s
	return s.wait == waitLock && s.Slots.Due() == 0 || s.wait == waitPin && !s.hasty || s.pinWaits()
}

// Drain asks the client to leave, and closes the connection at a quiet moment from now on. Until then the session works as before. within is the
// time that it has. Drain may be called again: a client that has sent nothing for a while is closed then; now: also one that has just sent. It
// reports whether the connection is about to close.
func (i *input) Drain(within time.Duration, now bool) bool {
	s := i.s
	s.mu.Lock()
	defer s.exit()
	if !s.Gone() && s.parting.Ask(s.wait != waitNone || s.Slots.Due() > 0 || s.in.Len() > 0) &&
		s.ident.Proto == 3 && (s.pin == nil || s.pin.mode != readsRaw) {
		s.Push(resp.AppendDraining(nil, within))
	}
	if now || Silent(s.proxy.Clock.Load()-s.active) {
		i.depart()
	}
	return s.over()
}

// departServed is depart for a client that has been served since it was asked to leave.
func (i *input) departServed() {
	if i.s.parting.BehindReply() {
		i.depart()
	}
}

// depart closes the connection of a client that is asked to leave, if this is a quiet moment: nothing is outstanding, no command has come in
// part, and the client has no lock, no wait, and no connection to Redis of its own.
func (i *input) depart() {
	s := i.s
	if s.Gone() || s.wait != waitNone || s.Slots.Due() > 0 || s.in.Len() > 0 || s.streaming || s.pin != nil || s.ears.Listening() || s.host.Unread() {
		return
	}
	if s.leaveEngines(); len(s.engines) > 0 {
		return
	}
	s.goodbye(nil)
	s.afterUnlock = append(s.afterUnlock, s.host.Flush)
}

// giveUp ends everything that the session has besides its output: waits, locks and connections.
func (s *Session) giveUp() {
	s.Slots.Forget()
	s.in.Forget()
	if s.streaming {
		s.large.timer.Stop()
	}
	s.Drop()
	s.ears.Close()
	s.repeated = nil
	pin := s.dropConnections()
	for _, e := range s.engines {
		e.Ended(s.ID)
		s.proxy.Locks.Leave(e)
	}
	for _, l := range s.losses {
		l.End()
	}
	s.engines, s.losses = nil, nil
	if pin != nil {
		pin.abandon()
	}
}

// runDeferred runs a function of afterUnlock. Requires no locks.
func (s *Session) runDeferred(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.proxy.Panicked(s.Addr, r)
		}
	}()
	f()
}
