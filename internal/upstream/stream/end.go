package stream

import "slices"

// A batch is the requests that were taken last.
type batch struct {
	spans  int    // of flight, the last ones
	before uint64 // requests taken before them
	begun  bool   // a part of the bytes has been written
	bytes  []byte // all of them, if none could be written
}

// Unwritten says that none of the bytes b, which Take has returned last, could be written. So Redis has carried out
// none of their requests. The connection ends.
func (s *Stream) Unwritten(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.begun {
		s.last.bytes = b
	}
}

// cut separates the requests of the batch, with their bytes, from others in front of them, if Redis has got none of the
// batch. done is the number of requests that are answered.
func (l *batch) cut(flight []span, done uint64) (sent, unsent []span, out []byte) {
	// A reply to a request that was not written can only be a mistake.
	if l.bytes == nil || len(flight) < l.spans || done > l.before {
		return flight, nil, nil
	}
	n := len(flight) - l.spans
	return flight[:n], flight[n:], l.bytes
}

// end marks the stream broken and tells every receiver and the observer. The reader and the writer have returned.
// next is the state afterwards: down, connecting if an attempt to reconnect follows at once, or resting.
//
// Requests that have not been taken, or not been written, wait for the next connection if their receivers keep them;
// keeps is nil if none may. Other requests are refused after the outcome of all earlier ones has been reported, because
// a receiver answers in the order of the reports.
func (s *Stream) end(err error, next state, keeps func(Receiver) bool) {
	s.mu.Lock()
	if len(s.left) > 0 && !s.last.begun { // the socket has taken nothing of the batch
		s.last.bytes = s.left
	}
	s.join()
	sent, unsent, out := s.last.cut(append(s.in.claimed[s.in.head:], s.flight...), s.in.done)
	unsent, out = slices.Concat(unsent, s.queue), slices.Concat(out, s.out)
	obs := s.obs
	s.state, s.mode, s.writer, s.leaving = connecting, Counted, asleep, false
	s.out, s.left, s.queue, s.flight, s.direct, s.mark = nil, nil, nil, nil, nil, nil
	s.asked, s.sent, s.last = 0, 0, batch{}
	s.settled.Store(0)
	s.scripts.bits.Store(0)
	s.mu.Unlock()

	s.in = input{s: s}
	for _, sp := range sent {
		sp.to.Lost(sp.tag, sp.n, true)
		sp.to.Flush()
	}
	if keeps != nil {
		unsent = s.keep(unsent, out, keeps)
	}
	var empty func()
	for more := true; more; unsent, empty, more = s.enter(next) {
		for _, sp := range unsent {
			sp.to.Lost(sp.tag, sp.n, false)
			sp.to.Flush()
		}
	}
	if obs != nil {
		obs.Closed(err)
	}
	if empty != nil {
		empty()
	}
}

// keep returns the requests that are lost. The others, whose receivers let them wait, go in front of the requests that
// have come meanwhile.
func (s *Stream) keep(list []span, out []byte, keeps func(Receiver) bool) (others []span) {
	var kept []span
	var bytes []byte
	for _, sp := range list {
		if keeps(sp.to) {
			kept = append(kept, sp)
			bytes = append(bytes, out[:sp.size]...)
		} else {
			others = append(others, sp)
		}
		out = out[sp.size:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.join()
	s.queue, s.out = append(kept, s.queue...), append(bytes, s.out...)
	for _, sp := range kept {
		s.asked += uint64(sp.n)
	}
	return others
}

// enter enters the state that follows the end, unless it is down and requests have been accepted meanwhile: then it
// returns them, to be told first. Last, it returns the function that waits until all bytes have been taken.
func (s *Stream) enter(next state) (unsent []span, empty func(), more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next == down {
		unsent = s.queue
		s.full, s.sealed, s.out, s.queue, s.asked = nil, 0, nil, nil, 0
		if len(unsent) > 0 {
			return unsent, nil, true
		}
	}
	s.taken = s.total - int64(s.waiting())
	s.written = s.taken
	if s.state = next; next == resting && len(s.queue) > 0 {
		s.state = connecting
		s.wanted.give()
	}
	empty, s.empty = s.empty, nil
	return nil, empty, false
}

// Reconnect says that the connection has ended, and that an attempt to make another follows at once.
func (s *Stream) Reconnect(err error) {
	s.end(err, connecting, func(to Receiver) bool { return to.Keeps(false) })
}

// Refuse turns a stream that has no connection into one that is down.
func (s *Stream) Refuse(err error) { s.end(err, down, nil) }

// Rest says that an attempt to connect has failed. refused: Redis has refused the connection, and the requests that
// waited for it are reported as unsent. Else they go on waiting if their receivers keep them.
func (s *Stream) Rest(err error, refused bool) {
	select {
	case <-s.wanted: // by requests that this refuses
	default:
	}
	if refused {
		s.end(err, resting, nil)
		return
	}
	s.end(err, resting, func(to Receiver) bool { return to.Keeps(true) })
}

// Sift drops the requests that waited for the connection which is about to be used, and whose receivers do not keep
// them any more: they must not run after their clients have gone. failed is that of Receiver.Keeps. It reports whether
// there are others.
func (s *Stream) Sift(failed bool) (wait bool) {
	if s.hasQueued() {
		s.end(nil, connecting, func(to Receiver) bool { return to.Keeps(failed) })
	}
	return s.hasQueued()
}

func (s *Stream) hasQueued() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// Waits reports whether the observer of a stream without a connection waits for another attempt.
func (s *Stream) Waits() bool {
	s.mu.Lock()
	obs := s.obs
	s.mu.Unlock()
	return obs != nil && obs.Waits()
}

// Leave says that the server has moved: the connection takes no more requests, and those that have not been taken wait
// for the next connection. It reports whether all that have been taken are settled. It may be called again until then,
// from Open to the connection's end.
func (s *Stream) Leave() (settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving = true; s.writer == asleep {
		s.writer = atWork // nothing wakes it
	}
	waiting := uint64(0)
	for _, sp := range s.queue {
		waiting += uint64(sp.n)
	}
	return s.asked-s.settled.Load() == waiting && len(s.left) == 0
}
