package upstream

import "lockproxy/internal/direct"

// A pin's bytes are written by whoever sends them, as far as the socket takes them at once, so that they are at Redis as soon as
// those of a client that is connected there directly. A writer goroutine would have to be woken for that first. What the socket
// does not take is left to it.
//
// At any time either the writer goroutine or nobody (asleep) takes from a stream; send takes that part for a moment.

// send writes what has been appended to a lazy stream.
func (s *stream) send() {
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
		s.left = b[n:] // the writer goroutine finds out what is wrong
	}
	s.mu.Unlock()
	if !done {
		s.ring()
	}
}

// maxDirect bounds what is written so: a large command takes the time of many, and is not waited for by the microsecond.
const maxDirect = 64 << 10

// writeDirectly lets send write to a socket.
func (s *stream) writeDirectly(w *direct.Writer) {
	s.mu.Lock()
	s.direct = w
	s.mu.Unlock()
}

// isReady reports whether send would write at once.
func (s *stream) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == up && s.asleep
}
