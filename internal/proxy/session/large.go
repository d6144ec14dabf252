package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A large command need not be held whole. If its name is known, and it only carries data, the session takes a pin and
// sends the bytes as they come. The lane stays free for other sessions meanwhile.
const (
	// streamFrom is the announced size from which a command is streamed. Smaller commands are cheaper on the lane.
	streamFrom = 4 << 20

	// streamHeld is the announced size up to which a command is held whole, if there is plenty of memory, for a route
	// that may have to send it again.
	streamHeld = 16 << 20

	// streamBacklog is the number of its bytes that may wait for Redis, if there is plenty of memory. Beyond it the
	// client is not read.
	streamBacklog = 1 << 20

	// streamLeast is the number of its bytes that must come within each Limits.LargeCommand. A client that announces a
	// large command and then sends little of it loses its pin.
	streamLeast = 64 << 10
)

// largeState says how far a command is that is not whole yet.
type largeState uint8

const (
	largeUnknown   largeState = iota // it is not known to be large yet, or it is large and waits for its pin
	largeHeld                        // no pin came for it: it is held whole
	largeStreaming                   // its start has been sent on the pin, or dropped if the pin is gone
)

// streaming reports whether the start of a large command has been sent.
func (s *Session) streaming() bool { return s.large.state == largeStreaming }

// progress is of a large command.
type progress struct {
	state   largeState
	timer   *time.Timer
	bytes   int  // received
	checked int  // received at the last check
	excused bool // the client was not read all the time since then

	request *request // the command, of which the start has been sent
	refusal []byte   // the reply to it, if its server cannot be reached; nil: it has none
}

// stream sends the start of a command that is not whole yet, if the command is large and may be streamed. It returns
// the number of bytes of buf that it has consumed.
func (s *Session) stream(table *command.Table, buf []byte) int {
	size := max(s.guard.Need(), s.guard.Checked())
	if !s.ready() || !s.streaming() && size < streamFrom {
		return 0
	}
	s.usual = false
	n := s.guard.Checked()
	if !s.streaming() && !s.beginStream(table, buf[:n]) {
		return 0
	}
	if s.pin != nil && s.large.refusal == nil {
		if conn := s.pin.conn; conn.Append(buf[:n], nil, 0, 0) == nil {
			s.countBacklog(conn, n)
		} else {
			s.pin.broken()
		}
	}
	s.guard.Discard(n)
	s.large.bytes += n
	return n
}

// beginStream begins a large command, of which begin has come. false: the command must be held whole, or the session
// waits.
func (s *Session) beginStream(table *command.Table, begin []byte) bool {
	name, open := s.guard.Open()
	if !open || s.large.state == largeHeld {
		return false
	}
	row := table.Lookup(name)
	if row.Policy != command.Shared || s.pin != nil && s.pin.mode != readsReplies {
		return false
	}
	r := s.newRequest(row, begin)
	r.Args, r.Muted = resp.FirstArgs(begin, nil, row.Keys.Fixed()+1), s.replyMode != replyOn
	return s.routed(r, s.openStream)
}

// openStream takes a pin for a large command. false: the command must be held whole, or the session waits.
func (s *Session) openStream(r *request) bool {
	if !s.way.Stream(r, max(s.guard.Need(), s.guard.Checked()), s.proxy.Budget.Allowance(streamHeld)) {
		return false
	}
	if s.pin == nil && !s.awaitQuiet() {
		return false
	}
	if _, ok := s.takePin(r, r.Row.Name+" (large)", r.Row.Policy, true); !ok { // it runs even if its client ends its side
		return false
	}
	s.large.state, s.large.request, r.Held = largeStreaming, r, true
	s.large.bytes, s.large.checked, s.large.excused = 0, 0, false
	s.large.timer = time.AfterFunc(s.proxy.Limits().LargeCommand, s.checkStream)
	s.cmd = r.Row.Title
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.tx.queued++
	}
	return true
}

// endStream sends the last part of a large command. If its pin was lost before any byte reached Redis, the command is
// refused.
func (s *Session) endStream(rest []byte) {
	s.usual = false
	s.large.state = largeUnknown
	s.large.timer.Stop()
	r := s.large.request
	s.large.request = nil
	defer s.release(r)
	if s.replyMode == replySkip {
		s.replyMode = replyOn
	}
	if refusal := s.large.refusal; s.pin == nil || refusal != nil {
		s.large.refusal = nil
		if s.out.Slots.Due() == 0 {
			s.backlog = budget.Backlog{} // of a connection that has ended
		}
		if refusal == nil {
			s.giveUp()
			return
		}
		s.answer(r, refusal)
		return
	}
	s.proxy.Counters.Traffic.Add(s.ID, metrics.ClassPinned, 1, s.large.bytes+len(rest))
	conn := s.pin.conn
	h := &reply.Reply{Session: s, Muted: r.Muted}
	// Redis has the start: it has closed the connection, because the command is too long for example.
	h.Missed = func() {
		if conn.Connected() {
			s.abandon()
		}
	}
	s.forward(ordinaryRow, rest, s.way.Guard(r, h), 1)
}

// checkStream ends a client whose large command comes too slowly.
func (s *Session) checkStream() {
	s.mu.Lock()
	defer s.exit()
	if !s.streaming() || s.life == ended {
		return
	}
	l := &s.large
	if l.bytes-l.checked < streamLeast && !l.excused && !s.paused {
		s.proxy.Closed(metrics.SlowCommand, s.Addr, l.bytes)
		s.end()
		return
	}
	l.checked, l.excused = l.bytes, false
	l.timer.Reset(s.proxy.Limits().LargeCommand)
}
