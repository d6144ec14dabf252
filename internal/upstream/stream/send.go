package stream

import "github.com/lockproxy/lockproxy/internal/direct"

// The sending goroutine itself writes to a pin, as far as the socket takes the bytes at once. So they are at Redis as soon as those of a
// directly connected client. A writer goroutine would have to be woken first; it writes only the bytes that the socket did not take.
//
// At most one goroutine takes from a stream: the writer, or, while the writer is asleep, send for a moment.

// Send writes the appended bytes of a lazy stream.
func (s *Stream) Send() {
	s.mu.Lock()
	if s.state != up || !s.asleep || len(s.out) == 0 {
		s.mu.Unlock()
		return
	}
	s.asleep = false
	w := s.direct
	if w == nil || s.empty != nil || len(s.out) > maxDirect {
		s.mu.Unlock()
		s.ring()
		return
	}
	b := s.takeLocked(nil)
	s.mu.Unlock()
	n, err := w.Write(b)
	s.mu.Lock()
	done := err == nil && n == len(b) && len(s.out) == 0 && !s.fin
	if done {
		s.asleep, s.written = true, s.taken
		s.out = b[:0]
	} else {
		s.left = b[n:] // the writer goroutine sees the error
		s.last.begun = n > 0
	}
	s.mu.Unlock()
	if !done {
		s.ring()
	}
}

// maxDirect bounds the bytes that are written so: a large command takes the time of many small ones, and a microsecond does not matter
// to it.
const maxDirect = 64 << 10

// WriteDirectly lets send write to a socket.
func (s *Stream) WriteDirectly(w *direct.Writer) {
	s.mu.Lock()
	s.direct = w
	s.mu.Unlock()
}

// IsReady reports whether send would write at once.
func (s *Stream) IsReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == up && s.asleep
}
