package stream

// Leave says that the server has moved: the connection takes no more requests, and those that have not been taken wait
// for the next connection. It reports whether all that have been taken are settled. It may be called again until then,
// from Open to the connection's end.
func (s *Stream) Leave() (settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.asleep = true, false // nothing wakes the writer
	waiting := uint64(0)
	for _, sp := range s.queue {
		waiting += uint64(sp.n)
	}
	return s.asked-s.settled.Load() == waiting && len(s.left) == 0
}
