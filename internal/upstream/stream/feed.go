package stream

import "github.com/lockproxy/lockproxy/internal/resp"

// Feed takes bytes that Redis sent and hands them on. Only the reader calls it. After an error the connection is useless.
func (s *Stream) Feed(b []byte) error {
	obs, err := s.take(b)
	if obs != nil {
		obs.Flush()
	}
	return err
}

// take is Feed but for the Flush, which may wait for a client.
func (s *Stream) take(b []byte) (Observer, error) {
	s.mu.Lock()
	m, obs := s.mode, s.obs
	if m == Counted {
		s.in.claim()
	}
	s.mu.Unlock()
	var err error
	switch {
	case m == Raw:
		if obs != nil {
			obs.Push(b, 0)
		}
	case m == Framed, m == Verdict:
		err = s.in.frames(b, obs)
	default:
		p := s.probe.Load()
		err = s.in.replies(b, obs)
		if p != nil && err == nil && p.outOfStep(b) {
			err = errOutOfStep
		}
	}
	return obs, err
}

// claim takes the requests that the writer has taken, if none is claimed. Requires s.mu.
func (in *input) claim() {
	if in.head == len(in.claimed) {
		in.claimed, in.s.flight, in.head = in.s.flight, in.claimed[:0], 0
	}
}

// replies hands each run of replies to the receiver of its requests.
func (in *input) replies(b []byte, obs Observer) error {
	defer in.flush()
	for len(b) > 0 {
		if in.head == len(in.claimed) { // the writer may have taken more
			in.s.mu.Lock()
			in.claim()
			in.s.mu.Unlock()
		}
		if in.inPush || b[0] == '>' && !in.mid {
			n, err := in.push(b, obs)
			if err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		if in.head == len(in.claimed) {
			return errUnexpected
		}
		n, err := in.run(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// run hands over the bytes of b that belong to the first receiver, at most up to the next push.
func (in *input) run(b []byte) (int, error) {
	sp := &in.claimed[in.head]
	off, done := 0, 0
	for off < len(b) && done < sp.n {
		if b[off] == '>' && !in.mid {
			break
		}
		n, whole, err := in.scan.Scan(b[off:])
		if err != nil {
			return off, err
		}
		in.mid = !whole
		off += n
		if whole {
			done++
		}
	}
	to, tag := sp.to, sp.tag
	sp.n -= done
	in.done += uint64(done)
	if sp.n == 0 {
		*sp = span{}
		in.head++
	}
	to.Replies(tag, b[:off], done, in.mid)
	if last := len(in.touched) - 1; last < 0 || in.touched[last] != to {
		in.touched = append(in.touched, to)
	}
	return off, nil
}

// push consumes bytes of one RESP3 push that stands between replies.
func (in *input) push(b []byte, obs Observer) (int, error) {
	n, whole, err := in.scan.Scan(b)
	if err != nil {
		return n, err
	}
	in.mid, in.inPush = !whole, !whole
	in.emit(b[:n], whole, '>', obs)
	return n, nil
}

// frames hands whole frames to the observer, in verdict mode up to the first byte that is no refusal.
func (in *input) frames(b []byte, obs Observer) error {
	for len(b) > 0 {
		if !in.mid && in.agreed(b[0]) {
			if obs != nil {
				obs.Push(b, 0)
			}
			return nil
		}
		push := in.inPush || !in.mid && b[0] == '>'
		n, whole, err := in.scan.Scan(b)
		if err != nil {
			return err
		}
		in.mid, in.inPush = !whole, !whole && push
		in.emit(b[:n], whole, in.scan.Kind(), obs)
		b = b[n:]
	}
	return nil
}

// agreed ends verdict mode at the first byte of a reply, and reports whether the next bytes are raw. Pushes come in
// between.
func (in *input) agreed(first byte) bool {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	if in.s.mode != Verdict || first == '>' {
		return false
	}
	in.s.mode = Raw
	if first == '-' {
		in.s.mode = Framed
	}
	return in.s.mode == Raw
}

// emit gives obs a frame once it is whole.
func (in *input) emit(b []byte, whole bool, kind resp.Kind, obs Observer) {
	if obs == nil {
		return
	}
	if !whole || len(in.frame) > 0 {
		in.frame = append(in.frame, b...)
		b = in.frame
	}
	if !whole {
		obs.Holding(len(in.frame))
		return
	}
	obs.Push(b, kind)
	if cap(in.frame) > maxKeptFrame {
		in.frame = nil
	}
	in.frame = in.frame[:0]
}

// maxKeptFrame bounds the memory a stream keeps for assembling frames after a large one has passed.
const maxKeptFrame = 64 << 10

func (in *input) flush() {
	in.s.settled.Store(in.done)
	for i, to := range in.touched {
		to.Flush()
		in.touched[i] = nil
	}
	in.touched = in.touched[:0]
}
