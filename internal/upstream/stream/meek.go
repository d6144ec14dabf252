package stream

// Redis (as of 2025) closes a connection that has not authenticated as soon as its replies do not fit into the buffer
// that it has for them: 16 KiB, and after some seconds of little use 1 KiB. On a shared lane that would cost every
// client without credentials its connection because of one of them, or because many come at once. So such a lane has
// few requests outstanding.

// maxMeek bounds the requests that are outstanding on a lane without credentials: a refusal has less than 340 bytes.
const maxMeek = 3

// MakeMeek says that Redis refuses the stream's requests for want of credentials. It is called before the stream is
// opened.
func (s *Stream) MakeMeek(on bool) { s.meek.Store(on) }

// takeMeek takes the requests that may be outstanding; nil: none for now, and relent wakes the writer.
func (s *Stream) takeMeek(spare []byte) []byte {
	s.join() // requests that came before the stream was meek
	space := maxMeek - int(s.sent-s.settled.Load())
	spans, size := 0, 0
	for spans < len(s.queue) && (space >= s.queue[spans].n || space == maxMeek) {
		space -= s.queue[spans].n
		size += s.queue[spans].size
		spans++
	}
	if spans == 0 {
		return nil
	}
	s.last = batch{spans: spans, before: s.sent}
	for _, sp := range s.queue[:spans] {
		s.sent += uint64(sp.n)
	}
	b := append(spare[:0], s.out[:size]...)
	s.out = s.out[size:]
	s.taken += int64(size)
	s.flight = append(s.flight, s.queue[:spans]...)
	clear(s.queue[:spans])
	s.queue = s.queue[spans:]
	return b
}
