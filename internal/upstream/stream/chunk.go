package stream

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/buffers"
)

// A chunk is requests that are taken together. Requests that wait for a slow connection are a list of chunks: one
// buffer for all would be copied each time it grows, so that the memory of all of them would be needed twice.
type chunk struct {
	bytes []byte
	spans int // the receivers
}

// chunkSize is the size to which out grows while its requests wait. A larger request has a chunk to itself.
const chunkSize = 256 << 10

// space makes space in out for a request of n bytes that does not fit beside the others. Requires s.mu.
func (s *Stream) space(n int) {
	if len(s.out) == 0 {
		return
	}
	s.full = append(s.full, chunk{s.out, len(s.queue) - s.sealed})
	s.sealed = len(s.queue)
	if n <= chunkSize/4 {
		n = chunkSize // others follow it
	}
	s.out = buffers.Get(n)
}

// takeChunk takes the first of the full chunks. Requires s.mu.
func (s *Stream) takeChunk() []byte {
	c := s.full[0]
	s.full = slices.Delete(s.full, 0, 1)
	s.sealed -= c.spans
	s.last = batch{spans: c.spans, before: s.sent}
	for _, sp := range s.queue[:c.spans] {
		s.sent += uint64(sp.n)
	}
	s.taken += int64(len(c.bytes))
	s.flight = append(s.flight, s.queue[:c.spans]...)
	s.queue = slices.Delete(s.queue, 0, c.spans)
	return c.bytes
}

// waiting is the number of bytes that have not been taken. Requires s.mu.
func (s *Stream) waiting() int {
	n := len(s.out)
	for _, c := range s.full {
		n += len(c.bytes)
	}
	return n
}

// join makes one buffer of all that has not been taken, at the end of a connection. Requires s.mu.
func (s *Stream) join() {
	if len(s.full) == 0 {
		return
	}
	all := make([]byte, 0, s.waiting())
	for _, c := range s.full {
		all = append(all, c.bytes...)
	}
	s.out = append(all, s.out...)
	s.full, s.sealed = nil, 0
}
