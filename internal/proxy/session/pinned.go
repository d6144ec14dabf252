package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// takePin gives the session, unless it has one, a connection of its own for a command; Shared: for a large one. reason is
// for people. hasty: the command does not wait for other clients. Nothing may be outstanding. false: the session waits
// for one, or it is refused, because none came in time.
func (s *Session) takePin(r *request, reason string, p command.Policy, hasty bool) (refusal []byte, ok bool) {
	switch err := s.pinTimedOut; {
	case s.pin != nil:
		return nil, true
	case err != nil:
		s.pinTimedOut = nil
		return s.proxy.NoPinFree(err, s.Addr), false
	case s.stranded():
		s.giveUp()
		return nil, false
	}
	s.hasty = hasty
	login := p == command.Identity
	// MONITOR shows all later connections. A patient request keeps the connection of a new spare out of its view.
	ask := upstream.Ask{ID: s.ident, At: r.At, Owner: s.owner, Login: login, Patient: p == command.PinRaw}
	if login {
		ask.Anew = readChange(r.Row.Name, r.Args).Auth
	}
	if conn := s.proxy.Upstream.Pins.Acquire(ask); conn != nil {
		s.setPin(conn, reason, login)
		return nil, true
	}
	s.wait = waitPin
	s.proxy.Counters.PinWaits.Add(1)
	s.cancelPinWait = s.proxy.Upstream.Pins.Await(ask, func(conn *upstream.Pin, err error) {
		if login && err != nil {
			err = errLogins
		}
		s.deliverPin(conn, err, reason, p)
	})
	return nil, false
}

// deliverPin ends the wait for a pin. err says why none came in time.
func (s *Session) deliverPin(conn *upstream.Pin, err error, reason string, p command.Policy) {
	s.mu.Lock()
	defer s.host.Flush()
	defer s.exit()
	if s.over() {
		if conn != nil {
			conn.Release()
		}
		return
	}
	s.cancelPinWait = nil
	s.wait = waitNone
	switch {
	case err == nil:
		s.setPin(conn, reason, p == command.Identity)
	case s.proxy.Upstream.Away(): // the others, too, wait for Redis
		s.giveUp()
	case p == command.Shared:
		s.large.state = largeHeld
	default:
		s.pinTimedOut = err
	}
	if err != nil {
		s.proxy.Counters.PinTimeouts.Add(1)
	}
	s.advance()
}

func (s *Session) setPin(conn *upstream.Pin, reason string, login bool) {
	s.pin = &pinned{s: s, conn: conn, reason: reason, login: login, fresh: true}
	s.proxy.Counters.PinReasons.Add(reason, 1)
	conn.Observe(s.pin)
	if conn.Name() != s.name {
		// The name shows in CLIENT LIST and CLIENT INFO of this connection, as it would on the client's own.
		s.forward(ordinaryRow, resp.AppendCommand(nil, "CLIENT", "SETNAME", s.name), s.named(s.name), 1)
	}
	if conn.ID() == 0 && conn.Connected() && s.ident.Authenticated() { // it was connected for a client without credentials
		s.askNumber(func(uint64) {})
	}
}

// named is the handler of the answer to the CLIENT SETNAME that gives a connection the name of its session. A user who
// may not do that may have the connection, but no later session may.
func (s *Session) named(name string) *reply.Reply {
	pin := s.pin
	return &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		if resp.IsOK(reply) {
			pin.conn.Named(name, true)
		} else if pin.conn.Name() != "" {
			pin.spent = true
		}
	}}
}

// releasePin returns the pin to the pool if nothing ties the session to it. Nothing is outstanding.
//
// The next session must find the connection as if it were new. That holds because every command on a pin is on one of
// these lists, or makes the pin spent: commands whose policy is known to leave no trace (routePinned); the session's
// own commands, whose trace is known (local); transactions, subscriptions and identities, whose state is read from
// Redis's answers.
func (s *Session) releasePin() {
	p := s.pin
	if p == nil || !s.ready() || p.fresh || p.borrowed > 0 || p.hasState() || s.streaming() {
		return
	}
	s.returnPin()
}

// returnPin gives up the pin: it returns to the pool, unless it may bear a trace.
func (s *Session) returnPin() {
	p := s.pin
	s.pin = nil
	if p.spent {
		p.discard()
		return
	}
	s.proxy.Counters.PinReasons.Add(p.reason, -1)
	p.conn.Release()
}

// unborrow ends a time for which the session has kept its pin for another session, which calls it. Requires no locks.
func (s *Session) unborrow(p *pinned) {
	s.mu.Lock()
	defer s.exit()
	if p.borrowed--; s.pin == p && s.out.Slots.Due() == 0 {
		s.releasePin()
	}
}

// hasState reports whether the connection is in a state that the session needs.
func (p *pinned) hasState() bool {
	return p.mode != readsReplies || p.keep || p.sole || p.tx.inTx || p.tx.watching
}

// dropConnections gives up the session's pin, which it returns, and its lane unless replies are due there.
func (s *Session) dropConnections() (pin *pinned) {
	if s.cancelPinWait != nil {
		s.cancelPinWait()
		s.cancelPinWait = nil
	}
	if pin = s.pin; pin != nil {
		pin.discard()
		s.pin = nil
	}
	if s.out.Slots.Due() == 0 {
		s.leaveLane()
	}
	return pin
}

// abandon ends the commands on a pin that has been discarded, if the connection does not count replies.
func (p *pinned) abandon() {
	if p.mode != readsReplies {
		p.s.loseFrames(p, true)
	}
}

// discard closes the connection of a pin that the session has given up.
func (p *pinned) discard() {
	p.s.proxy.Counters.PinReasons.Add(p.reason, -1)
	p.conn.Discard()
}

// Push implements upstream.Observer.
func (p *pinned) Push(b []byte, kind resp.Kind) {
	s := p.s
	s.mu.Lock()
	defer s.exit()
	p.frame = 0
	if s.reach != met {
		s.reached()
	}
	if s.out.Gone() || s.pin != p {
		return
	}
	switch p.mode {
	case readsFrames:
		s.frame(s.redir.Translate(b), kind)
	case readsVerdict:
		s.verdict(b, kind)
	case readsRaw:
		s.out.emit(b)
		if s.out.Unread() >= mostUntaken && s.crowded == nil {
			s.crowded = make(chan struct{})
		}
	default:
		s.out.push(s.redir.Translate(b))
	}
	s.advance()
}

// Holding implements upstream.Observer.
func (p *pinned) Holding(n int) {
	p.s.mu.Lock()
	defer p.s.exit()
	p.frame = n
}

// Closed implements upstream.Observer.
func (p *pinned) Closed(error) {
	s := p.s
	s.mu.Lock()
	defer s.host.Flush()
	defer s.exit()
	if s.out.Gone() || s.pin != p {
		return
	}
	p.broken()
	s.advance()
}

// broken handles the end of the connection. The session's state there is lost, so the client's connection ends too. If
// it could not be made, its commands have the reply that Redis has given, or the client's connection ends.
func (p *pinned) broken() {
	s := p.s
	switch words := s.Refusal(); {
	case s.rejected():
		s.CutOff()
		return
	case p.conn.Connected() && (p.hasState() || s.streaming() || s.side == sideEnded):
		s.abandon()
		return
	case words == nil && (p.unread > 0 || s.streaming()):
		s.giveUp()
	default:
		for range p.unread {
			s.out.say(words)
		}
		if s.streaming() {
			s.large.refusal = words
		}
	}
	s.loseFrames(p, false)
	if s.pin == p {
		s.pin = nil
		p.discard()
	}
}

// Waits implements upstream.Observer.
func (p *pinned) Waits() bool {
	if p.s.way.PlacesEach() {
		return false
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.s.pin == p && p.s.waits(true)
}

// Flush implements upstream.Observer. A connection whose bytes pass unread is read no faster than its client reads. The
// rest waits at Redis, within the limits of Redis, as on a direct connection.
func (p *pinned) Flush() {
	s := p.s
	s.host.Flush()
	s.mu.Lock()
	crowded := s.crowded
	s.mu.Unlock()
	if crowded != nil {
		<-crowded
	}
}

// letRead has the reader of such a connection go on when the client has read, or the session is over. Requires s.mu.
func (s *Session) letRead() {
	if s.crowded != nil && (s.out.Gone() || s.out.Unread() < mostUntaken) {
		close(s.crowded)
		s.crowded = nil
	}
}

var _ upstream.Observer = (*pinned)(nil)
