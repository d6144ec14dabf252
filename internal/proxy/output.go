package proxy

import (
	"go.uber.org/zap"

	"lockproxy/internal/buffers"
	"lockproxy/internal/proxy/replies"
)

// output is the session's side toward the client: bytes in the order in which the client gets them.
type output struct {
	out     []byte   // not yet taken by an engine
	full    [][]byte // what was in out before, each about chunkSize; goes first
	spare   []byte   // an emptied buffer for reuse
	writing bool     // an engine is writing what it has taken
	closing bool     // the connection closes when all output is written
	unread  int      // bytes in all of these, and those that an engine has taken and not yet written
}

// emit appends bytes to the output.
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

// place appends bytes that are counted. Very many become chunks, each of which is written and given back by itself.
func (o *output) place(b []byte) {
	for len(b) > 2*chunkSize {
		o.append(b[:chunkSize])
		b = b[chunkSize:]
	}
	o.append(b)
}

func (o *output) append(b []byte) {
	switch {
	case o.out == nil:
		o.out, o.spare = o.spare, nil
	case len(o.out)+len(b) > chunkSize && len(o.out) > chunkSize/2:
		// A client that does not read makes more chunks, and nothing is copied again.
		o.full = append(o.full, o.out)
		o.out = nil
	}
	o.out = buffers.Append(o.out, b, 0)
}

// chunkSize is how much output is written at once, more or less.
const chunkSize = 256 << 10

// put adds bytes to the replies of a slot; more: they end within one.
func (s *Session) put(at replies.ID, b []byte, more bool) {
	if s.gone() {
		return
	}
	if s.slots.Put(at, b, more) {
		s.place(b)
	}
	s.countUnread(len(b))
}

// say is a reply made here to the last command.
func (s *Session) say(b []byte) {
	if s.gone() || len(b) == 0 {
		return
	}
	if s.slots.Say(b) {
		s.place(b)
	}
	s.countUnread(len(b))
}

// push sends out-of-band data between replies.
func (s *Session) push(b []byte) {
	if s.gone() {
		return
	}
	if s.slots.Push(b) {
		s.place(b)
	}
	s.countUnread(len(b))
}

// forget drops all output of a session that has ended.
func (o *output) forget() {
	o.out, o.full, o.spare, o.unread = nil, nil, nil, 0
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
