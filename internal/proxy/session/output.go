package session

import (
	"go.uber.org/zap"

	"lockproxy/internal/proxy/outbox"
	"lockproxy/internal/proxy/replies"
)

// output has the bytes for the client, in the order in which it gets them.
type output struct {
	out     outbox.Outbox
	closing bool // the connection closes when all output is written
	unread  int  // bytes in all of these, and those that an engine has taken and not yet written
}

// emit appends bytes to the output.
func (s *Session) emit(b []byte) {
	if s.gone() {
		return
	}
	s.out.Append(b)
	s.countUnread(len(b))
}

// countUnread counts bytes until they are written, and ends a client that leaves too many unread.
func (s *Session) countUnread(n int) {
	s.unread += n
	if s.unread > s.proxy.Settings.Limits.Output && !s.ended {
		s.proxy.Settings.Logger.Warn("client closed: output buffer limit", zap.String("client", s.Addr), zap.Int("bytes", s.unread))
		s.proxy.Counters.OutputLimit.Add(1)
		s.end()
	}
}

// put adds bytes to the replies of a slot; more: they end within one.
func (s *Session) put(at replies.ID, b []byte, more bool) {
	if s.gone() {
		return
	}
	if s.slots.Put(at, b, more) {
		s.out.Append(b)
	}
	s.countUnread(len(b))
}

// say gives the proxy's own reply to the last command.
func (s *Session) say(b []byte) {
	if s.gone() || len(b) == 0 {
		return
	}
	if s.slots.Say(b) {
		s.out.Append(b)
	}
	s.countUnread(len(b))
}

// push sends out-of-band data between replies.
func (s *Session) push(b []byte) {
	if s.gone() {
		return
	}
	if s.slots.Push(b) {
		s.out.Append(b)
	}
	s.countUnread(len(b))
}

// forget drops all output of a session that has ended.
func (o *output) forget() {
	o.out.Forget()
	o.unread = 0
}

// closeAfterOutput ends the session and lets the engine write what is left.
func (s *Session) closeAfterOutput() {
	s.closing = true
}

// BeginWrite hands the output to the engine, which must call EndWrite when it has written it; meanwhile it is the only
// writer. nil: there is nothing to write, or another goroutine is writing. last: after this the connection is to be closed.
func (s *Session) BeginWrite() (b []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b = s.out.Begin(); b == nil {
		return nil, s.closing && !s.out.Writing()
	}
	s.active = s.proxy.Clock.Load()
	return b, s.closing
}

// EndWrite returns the buffer.
func (s *Session) EndWrite(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.End(b, !s.ended)
	if s.ended {
		return
	}
	s.unread -= len(b)
	if s.bill.Bytes() > 0 {
		s.charge()
	}
}
