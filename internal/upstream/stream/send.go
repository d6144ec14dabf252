package stream

import (
	"runtime"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/netio"
)

// The sending goroutine itself writes to a pin, as far as the socket takes the bytes at once. So they are at Redis as
// soon as those of a directly connected client. A writer goroutine would have to be woken first; it writes only the
// bytes that the socket did not take.
//
// To wake the writer of a lane may cost more than the write, too, because it may wake a processor. So the goroutine
// that would wake the writer writes in its place, and wakes it only if there is more than it may write.
//
// At most one goroutine takes from a stream: the writer, or, while the writer is asleep, Send for a moment.

// Send writes the appended bytes of a lazy stream, and those of another one that AppendDue has left to its caller, in
// place of the writer.
func (s *Stream) Send() {
	s.mu.Lock()
	due := s.writer == relieved && s.direct != nil // else the connection has ended
	if !due && !(s.lazy && s.wakeable() && len(s.out) > 0) {
		s.mu.Unlock()
		return
	}
	s.writer = replaced
	s.writes.Add(1)
	defer s.writes.Done()
	if due && s.sent != s.settled.Load() { // others are at work
		s.mu.Unlock()
		runtime.Gosched() // lets them add their requests, as in serve.go
		s.mu.Lock()
	}
	done := s.writeLocked()
	s.mu.Unlock()
	if !done {
		s.ring()
	}
}

// maxWrites bounds the writes of one Send: its caller has a client of its own to serve.
const maxWrites = 2

// writeLocked takes the appended bytes and writes them, in place of a writer that is replaced. It unlocks the stream
// during each write. false: the writer has to go on. Requires s.mu.
func (s *Stream) writeLocked() (done bool) {
	for range maxWrites {
		w := s.direct
		if w == nil || s.leaving || s.empty != nil || len(s.full) > 0 || len(s.out) > maxDirect {
			break
		}
		b := s.takeLocked(s.spare)
		s.spare = nil
		s.mu.Unlock()
		n, err := w.Write(b)
		s.mu.Lock()
		if n < len(b) || err != nil {
			s.left = b[n:] // the writer sees the error
			s.last.begun = n > 0
			break
		}
		s.written = s.taken
		if b = buffers.Empty(b); cap(s.out) == 0 {
			s.out = b
		} else {
			s.spare = b
		}
		if len(s.out) == 0 {
			done = !s.fin && !s.leaving
			break
		}
	}
	if s.writer = atWork; done {
		s.writer = asleep
	}
	return done
}

// maxDirect bounds the bytes that are written so: a large command takes the time of many small ones, and a microsecond
// does not matter to it.
const maxDirect = 64 << 10

// WriteDirectly lets Send write to a socket.
func (s *Stream) WriteDirectly(w *netio.Writer) {
	s.mu.Lock()
	s.direct = w
	s.mu.Unlock()
}

// EndDirect ends the writes of Send for the present connection. When it returns, none is writing.
func (s *Stream) EndDirect() {
	s.mu.Lock()
	s.direct = nil
	s.mu.Unlock()
	s.writes.Wait()
}

// IsReady reports whether Send would write at once.
func (s *Stream) IsReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakeable()
}
