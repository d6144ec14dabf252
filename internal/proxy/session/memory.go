package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Bytes that small things take, with the structures and slices around them. They are estimates, which no test checks.
// They make things count that a client can have by the million.
const (
	slotCost   = 256 // a slot and its handler
	changeCost = 128 // a queuedChange
	argCost    = 24  // a slice
)

// charge charges the session's present memory. Every entry into the session ends with it.
func (s *Session) charge() {
	usual := s.usual && s.pin == nil && !s.out.Gone()
	s.usual = false
	if usual {
		s.bill.Charge(s.moving() + s.standing)
		return
	}
	s.bill.Charge(s.bytes())
	if s.life == ended && s.out.Slots.Due() == 0 {
		s.bill.Close()
	}
}

// bytes is the memory that the session takes on behalf of its client.
func (s *Session) bytes() int {
	if s.life == ended {
		return s.backlog.Bytes() + s.out.Slots.Slots()*slotCost
	}
	s.standing = s.stationary()
	return s.moving() + s.standing
}

// moving is the part of the memory that ordinary commands and replies change.
func (s *Session) moving() int {
	return s.backlog.Bytes() + s.out.Slots.Slots()*slotCost + s.in.cap() +
		s.out.Unread() + s.out.Outbox.Spare() + int(s.lockMemory.Load())
}

// stationary is the other part.
func (s *Session) stationary() int {
	n := s.way.Bytes() + cap(s.script) + cap(s.args)*argCost + s.gathered + s.lockBytes() +
		len(s.name) + len(s.called) + len(s.lib[0]) + len(s.lib[1]) + len(s.library) +
		len(s.ident.User) + len(s.ident.Password)
	if p := s.pin; p != nil {
		n += len(p.tx.changes)*changeCost + p.frame
	}
	return n
}

// progress is of the connection that the session's commands go to.
func (s *Session) progress() (appended, written int64) {
	switch {
	case s.pin != nil:
		return s.pin.conn.Progress()
	case s.lane != nil:
		return s.lane.Progress()
	}
	return 0, 0
}

// countBacklog notes n bytes that have just been appended.
func (s *Session) countBacklog(conn upstream.Connection, n int) {
	appended, written := conn.Progress()
	s.backlog.Add(n, appended, written)
}

// written notes that the engine has written output, or given it up.
func (s *Session) written(b []byte) {
	s.out.Outbox.End(b, s.life < ended)
	if s.life == ended {
		return
	}
	s.out.written(len(b))
	s.letRead()
	s.taken()
	s.readOn()
	if s.bill.Bytes() > 0 {
		s.charge()
	}
}

// Measure implements budget.Owner.
func (s *Session) Measure() int {
	s.mu.Lock()
	defer s.exit()
	if _, written := s.progress(); s.backlog.Bytes() > 0 {
		s.backlog.Settle(written)
	}
	return s.bytes()
}

// Cut implements budget.Owner.
func (s *Session) Cut(bytes int) {
	s.mu.Lock()
	defer s.exit()
	if s.life == ended {
		return
	}
	s.proxy.Closed(metrics.MemoryLimit, s.Addr, bytes)
	s.bill.Condemn()
	s.end()
}

var _ budget.Owner = (*Session)(nil)
