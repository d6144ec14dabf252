package session

import (
	"time"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/proxy/weight"
	"lockproxy/internal/resp"
)

// New makes the session of a client.
func New(from clients.Origin, e *shared.Proxy, h Host) *Session {
	s := &Session{
		Origin: from, owner: clients.Account(from.Addr), proxy: e, host: h,
	}
	s.input.s, s.output.s, s.nodes.s, s.lanes.s, s.pinning.s, s.logins.s, s.profile.s, s.locker.s, s.memory.s = s, s, s, s, s, s, s, s, s
	s.view = e.Upstream.View()
	s.guard, s.ident = resp.NewGuard(e.Limits().Request), e.FirstIdentity()
	s.guard.Restrict(e.Restricts(s.ident))
	s.bill.Open(e.Budget, s)
	if e.Upstream.Tight() {
		s.Window = weight.FirstWindow
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

// unlock unlocks the session and runs the functions of afterUnlock.
func (s *Session) unlock() {
	if s.pin != nil {
		s.pin.conn.Send()
	}
	deferred := s.afterUnlock
	s.afterUnlock = nil
	s.charge()
	s.mu.Unlock()
	for _, f := range deferred {
		s.runDeferred(f)
	}
}

func (s *Session) runDeferred(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.proxy.Panicked(s.Addr, r)
		}
	}()
	f()
}

// contain ends the session if it panics.
func (s *Session) contain() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
}

// crashed ends this session, and only this one, after a panic in it.
func (s *Session) crashed(r any) {
	s.proxy.Panicked(s.Addr, r)
	s.end()
}

// countUnread counts bytes until they are written, and ends a client that leaves too many unread.
func (o *output) countUnread(n int) {
	s := o.s
	o.unread += n
	if o.unread > s.proxy.Limits().Output && !s.ended {
		s.proxy.OutputLimit(s.Addr, o.unread)
		s.end()
	}
}

// protocolError answers the guard's error behind all earlier replies, and closes the connection.
func (s *Session) protocolError(err error) {
	s.proxy.Counters.ProtocolErrors.Add(1)
	words := resp.AppendRawError(nil, "ERR "+err.Error())
	if s.reply != replyOn {
		words = words[:0]
	}
	s.goodbye(words)
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
	if !i.eof || s.gone() {
		return
	}
	switch {
	case i.streaming:
		s.cutOff() // the large command stays incomplete
	case s.wait == waitLock && s.slots.Due() == 0:
		s.end()
	case s.wait == waitPin && !s.hasty:
		s.end() // on a direct connection it would be waiting by now, or have been answered
	case s.pinWaits():
		s.pin.conn.CloseWrite() // as below, although more commands are to follow
	case s.wait != waitNone:
	case s.pin != nil && (s.slots.Due() > 0 || s.pin.mode == readsRaw):
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
	return s.wait == waitLock && s.slots.Due() == 0 || s.wait == waitPin && !s.hasty || s.pinWaits()
}

// Drain ends the session when it has its replies, unless it uses a lock engine (LeaveEngines). A session that waits
// for other clients, on a list or a channel, ends at once.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.exit()
	switch {
	case s.ended, len(s.engines) > 0, s.wait == waitGoodbye && !s.pinWaits():
	case s.wait == waitPin, s.pin != nil && s.pin.mode != readsReplies, s.pinWaits():
		s.end()
	default:
		s.goodbye(nil)
	}
}

func (s *Session) giveUp() {
	s.slots.Forget()
	s.in.Forget()
	if s.streaming {
		s.large.timer.Stop()
	}
	s.dropErrands()
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

// forget drops all output of a session that has ended.
func (o *output) forget() {
	o.out.Forget()
	o.unread = 0
}
