package proxy

import (
	"go.uber.org/zap"

	"lockproxy/internal/buffers"
	"lockproxy/internal/lockcmds"
	"lockproxy/internal/upstream"
)

// output is the session's side toward the client: bytes in the order in which the client gets them.
type output struct {
	out     []byte    // not yet taken by an engine
	full    [][]byte  // what was in out before, each about chunkSize; goes first
	spare   []byte    // an emptied buffer for reuse
	writing bool      // an engine is writing what it has taken
	closing bool      // the connection closes when all output is written
	mid     bool      // out ends in the middle of a reply
	pushes  []byte    // out-of-band data that waits for the end of that reply
	stalled []segment // output behind a reply that is not known yet, in order
	unread  int       // bytes in all of these, and those that an engine has taken and not yet written
}

// segment is output that waits for its turn: the reply of owner, or, without an owner, bytes behind it.
type segment struct {
	owner *scriptCall // nil: b is complete
	b     []byte
}

// receiver is a Receiver of this package. Where replies are not counted by the connection, the session gives them out, with
// its lock held.
type receiver interface {
	upstream.Receiver

	// take handles bytes of a reply; more says that the reply goes on.
	take(b []byte, more bool)

	// refused says that n commands were not sent.
	refused(n int)
}

// emit appends reply bytes to the output.
func (s *Session) emit(b []byte) {
	if s.gone() {
		return
	}
	s.place(b)
	s.countUnread(len(b))
}

// countUnread counts bytes until they are written, and ends a client that lets them pile up.
func (s *Session) countUnread(n int) {
	s.unread += n
	if s.unread > s.env.opts.Limits.Output && !s.ended {
		s.env.opts.Logger.Warn("client closed: output buffer limit", zap.String("client", s.addr), zap.Int("bytes", s.unread))
		s.env.stats.OutputLimit.Add(1)
		s.end()
	}
}

// place puts bytes that are counted where they belong.
func (s *Session) place(b []byte) {
	if len(s.stalled) > 0 {
		last := &s.stalled[len(s.stalled)-1]
		if last.owner != nil {
			s.stalled = append(s.stalled, segment{})
			last = &s.stalled[len(s.stalled)-1]
		}
		last.b = append(last.b, b...)
		return
	}
	switch {
	case s.out == nil:
		s.out, s.spare = s.spare, nil
	case len(s.out)+len(b) > chunkSize && len(s.out) > chunkSize/2:
		// A client that does not read makes more chunks, and nothing is copied again.
		s.full = append(s.full, s.out)
		s.out = nil
	}
	s.out = buffers.Append(s.out, b, 0)
}

// chunkSize is how much output is written at once at the most, unless a single piece has more.
const chunkSize = 256 << 10

// stall makes the output behind this point wait for the reply of c.
func (s *Session) stall(c *scriptCall) { s.stalled = append(s.stalled, segment{owner: c}) }

// unstall says what the reply is that output has waited for.
func (s *Session) unstall(c *scriptCall, reply []byte) {
	for i := range s.stalled {
		if s.stalled[i].owner == c {
			s.stalled[i] = segment{b: reply}
			s.countUnread(len(reply))
			break
		}
	}
	waiting := s.stalled
	s.stalled = nil
	for i, seg := range waiting {
		if seg.owner != nil {
			s.stalled = waiting[i:]
			return
		}
		s.place(seg.b)
	}
}

// push appends out-of-band data between replies.
func (s *Session) push(b []byte) {
	if s.mid && len(s.stalled) == 0 {
		s.pushes = append(s.pushes, b...)
		s.countUnread(len(b))
		return
	}
	held := s.stalled
	s.stalled = nil
	s.emit(b)
	s.stalled = held
}

// setMid notes whether the output ends within a reply.
func (s *Session) setMid(mid bool) {
	s.mid = mid
	if !mid && len(s.pushes) > 0 {
		b := s.pushes
		s.pushes = nil
		s.place(b)
	}
}

// forget drops all output of a session that has ended.
func (o *output) forget() {
	o.out, o.full, o.spare, o.pushes, o.stalled, o.unread = nil, nil, nil, nil, nil, 0
}

// closeAfterOutput ends the session and lets the engine write what is left.
func (s *Session) closeAfterOutput() {
	s.closing = true
}

// BeginWrite hands the output to the engine, which must call EndWrite when it has written it; meanwhile it is the only
// writer. nil: there is nothing to write, or somebody else is writing. last: after this the connection is to be closed.
func (s *Session) BeginWrite() (b []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		return nil, false
	}
	switch {
	case len(s.full) > 0:
		b = s.full[0]
		s.full[0] = nil
		if s.full = s.full[1:]; len(s.full) == 0 {
			s.full = nil // a burst must not keep its memory
		}
	case len(s.out) > 0:
		b, s.out = s.out, nil
	default:
		return nil, s.closing
	}
	s.writing = true
	s.heard = s.env.clock.Load()
	return b, s.closing
}

// EndWrite gives the buffer back.
func (s *Session) EndWrite(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	if s.ended {
		return
	}
	s.unread -= len(b)
	if cap(b) > maxKept {
		buffers.Free(b)
	} else if s.spare == nil {
		s.spare = b[:0]
	}
	if s.bill.Bytes() > 0 {
		s.charge()
	}
}

// Replies is upstream.Receiver for commands whose replies go to the client as they are.
func (s *Session) Replies(b []byte, n int, more bool) {
	s.mu.Lock()
	defer s.leave()
	if !s.gone() {
		s.take(b, more)
	}
	s.answered(n)
	s.advance()
}

func (s *Session) take(b []byte, more bool) {
	s.burst += len(b)
	s.emit(b)
	s.setMid(more)
}

// answered counts replies that have come in whole.
func (s *Session) answered(n int) {
	if s.pending == 0 { // the pin they were asked on is gone
		return
	}
	s.pending -= n
	if s.pending == 0 {
		s.quiet()
	}
}

// Lost is upstream.Receiver.
func (s *Session) Lost(n int, sent bool) {
	s.mu.Lock()
	defer s.leave()
	s.lost(n, sent, s)
	s.advance()
}

// lost deals with n commands that get no reply: those that were never sent are refused in words, and for one that may
// have been executed the connection closes, as it would have if Redis itself had died.
func (s *Session) lost(n int, sent bool, to receiver) {
	if !s.gone() {
		if !sent && !s.rejected() {
			to.refused(n)
			return
		}
		s.cutOff()
	}
	forsake(to, lockcmds.ErrUnsent) // a call that was sent is told by its own Lost
	s.answered(n)
}

// Keeps is upstream.Receiver.
func (s *Session) Keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.gone()
}

// refused answers n commands that were never sent.
func (s *Session) refused(n int) {
	words := s.refusal()
	for range n {
		s.emit(words)
	}
	s.answered(n)
}

// Flush is upstream.Receiver: the replies that came in together go out together.
func (s *Session) Flush() { s.host.Flush() }

var _ receiver = (*Session)(nil)

// discard is the receiver of replies that the client is not to see.
type discard struct{ s *Session }

func (d discard) Replies(_ []byte, n int, _ bool) {
	d.s.mu.Lock()
	defer d.s.leave()
	d.s.answered(n)
	d.s.advance()
}

func (d discard) Lost(n int, sent bool) {
	d.s.mu.Lock()
	defer d.s.leave()
	d.s.lost(n, sent, d)
	d.s.advance()
}

func (d discard) Keeps() bool { return d.s.Keeps() }

func (d discard) take([]byte, bool) {}

func (d discard) refused(n int) { d.s.answered(n) }

func (d discard) Flush() { d.s.host.Flush() }

var _ receiver = discard{}
