package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
)

// Bytes that small things take, with the structures and slices around them. They are estimates, which no test checks. They make
// things count that a client can have by the million.
const (
	slotCost = 256 // a slot and its handler
	stepCost = 128 // a transaction.Step
	argCost  = 24  // a slice

	// nameCopies is how often the name of a lock is in memory while its command is not answered: in the keys, channels and places of the lock engine,
	// and in the script call. A client that waits for a lock with a name of 1 MB takes 4.4 MB.
	nameCopies = 5
)

// charge charges the session's present memory. Every entry into the session ends with it.
func (m *memory) charge() {
	s := m.s
	usual := m.usual && s.pin == nil && !s.Gone()
	m.usual = false
	if usual {
		m.bill.Charge(m.moving() + m.standing)
		return
	}
	m.bill.Charge(m.bytes())
	if s.ended && s.Slots.Due() == 0 {
		m.bill.Close()
	}
}

// bytes is the memory that the session takes on behalf of its client.
func (m *memory) bytes() int {
	s := m.s
	if s.ended {
		return m.backlog.Bytes() + m.calling + s.Slots.Slots()*slotCost
	}
	m.standing = m.stationary()
	return m.moving() + m.standing
}

// moving is the part of the memory that ordinary commands and replies change.
func (m *memory) moving() int {
	s := m.s
	return m.backlog.Bytes() + s.Slots.Slots()*slotCost + s.in.Cap() + s.Unread() + s.Out.Spare() + int(m.held.Load())
}

// stationary is the other part.
func (m *memory) stationary() int {
	s := m.s
	n := s.Kept() + s.ears.Bytes() + cap(s.script) + cap(s.args)*argCost + m.gathered + m.locking*nameCopies + m.calling +
		len(s.name) + len(s.called) + len(s.lib[0]) + len(s.lib[1]) + len(s.library) + len(s.ident.User) + len(s.ident.Password)
	if p := s.pin; p != nil {
		n += len(p.Steps)*stepCost + p.Names + len(p.Kept)*argCost + p.Size + p.execution.Due()*stepCost + p.frame
	}
	if r := s.replay; r != nil {
		n += len(r.Steps)*stepCost + r.Names + len(r.Kept)*argCost + r.Size
	}
	return n
}

// progress is of the connection that the session's commands go to.
func (m *memory) progress() (appended, written int64) {
	s := m.s
	switch {
	case s.pin != nil:
		return s.pin.conn.Progress()
	case s.lane != nil:
		return s.lane.Progress()
	}
	return 0, 0
}

// countBacklog notes n bytes that have just been appended.
func (m *memory) countBacklog(conn connection, n int) {
	appended, written := conn.Progress()
	m.backlog.Add(n, appended, written)
}

// written notes that the engine has written output, or given it up.
func (m *memory) written(b []byte) {
	s := m.s
	s.Out.End(b, !s.ended)
	if s.ended {
		return
	}
	s.Written(len(b))
	s.taken()
	s.readOn()
	if m.bill.Bytes() > 0 {
		m.charge()
	}
}

// Measure implements budget.Owner.
func (m *memory) Measure() int {
	s := m.s
	s.mu.Lock()
	defer s.exit()
	if _, written := m.progress(); m.backlog.Bytes() > 0 {
		m.backlog.Settle(written)
	}
	return m.bytes()
}

// Cut implements budget.Owner.
func (m *memory) Cut(bytes int) {
	s := m.s
	s.mu.Lock()
	defer s.exit()
	if s.ended {
		return
	}
	s.proxy.MemoryLimit(s.Addr, bytes)
	m.bill.Condemn()
	s.end()
}

var _ budget.Owner = (*Session)(nil)
