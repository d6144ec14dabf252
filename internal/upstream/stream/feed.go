package stream

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Feed takes bytes that Redis sent and hands them on. Only the reader calls it.
func (s *Stream) Feed(b []byte) error {
	s.mu.Lock()
	m, obs := s.mode, s.obs
	if m == Counted && s.head == len(s.claimed) {
		s.claimed, s.flight, s.head = s.flight, s.claimed[:0], 0
	}
	s.mu.Unlock()
	var err error
	switch {
	case m == Raw:
		if obs != nil {
			obs.Push(b, 0)
		}
	case m == Framed, m == Verdict:
		err = s.feedFrames(b, obs)
	default:
		err = s.feedReplies(b, obs)
	}
	if obs != nil {
		obs.Flush()
	}
	return err
}

// feedReplies hands each run of replies to the receiver of its requests.
func (s *Stream) feedReplies(b []byte, obs Observer) error {
	defer s.flushTouched()
	for len(b) > 0 {
		if s.head == len(s.claimed) { // the writer may have taken more
			s.mu.Lock()
			s.claimed, s.flight, s.head = s.flight, s.claimed[:0], 0
			s.mu.Unlock()
		}
		if s.inPush || b[0] == '>' && !s.mid {
			n, err := s.feedPush(b, obs)
			if err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		if s.head == len(s.claimed) {
			return errUnexpected
		}
		n, err := s.feedRun(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// feedRun hands over the bytes of b that belong to the first receiver, at most up to the next push.
func (s *Stream) feedRun(b []byte) (int, error) {
	sp := &s.claimed[s.head]
	off, done := 0, 0
	for off < len(b) && done < sp.n {
		if b[off] == '>' && !s.mid {
			break
		}
		if b[off] == '-' && !s.mid && s.readonly != nil && bytes.HasPrefix(b[off:], readonlyCode) { // a cut prefix is missed: it is a hint only
			s.readonly()
		}
		n, whole, err := s.scan.Scan(b[off:])
		if err != nil {
			return off, err
		}
		s.mid = !whole
		off += n
		if whole {
			done++
		}
	}
	to, tag := sp.to, sp.tag
	sp.n -= done
	s.done += uint64(done)
	if sp.n == 0 {
		*sp = span{}
		s.head++
	}
	to.Replies(tag, b[:off], done, s.mid)
	if last := len(s.touched) - 1; last < 0 || s.touched[last] != to {
		s.touched = append(s.touched, to)
	}
	return off, nil
}

// readonlyCode begins a replica's refusal of a write.
var readonlyCode = []byte("-READONLY ")

// feedPush consumes bytes of one RESP3 push that stands between replies.
func (s *Stream) feedPush(b []byte, obs Observer) (int, error) {
	n, whole, err := s.scan.Scan(b)
	if err != nil {
		return n, err
	}
	s.mid, s.inPush = !whole, !whole
	s.emit(b[:n], whole, '>', obs)
	return n, nil
}

// feedFrames hands whole frames to the observer, in verdict mode up to the first byte that is no refusal.
func (s *Stream) feedFrames(b []byte, obs Observer) error {
	for len(b) > 0 {
		if !s.mid && s.agreed(b[0]) {
			if obs != nil {
				obs.Push(b, 0)
			}
			return nil
		}
		push := s.inPush || !s.mid && b[0] == '>'
		n, whole, err := s.scan.Scan(b)
		if err != nil {
			return err
		}
		s.mid, s.inPush = !whole, !whole && push
		s.emit(b[:n], whole, s.scan.Kind(), obs)
		b = b[n:]
	}
	return nil
}

// agreed ends verdict mode at the first byte of a reply, and reports whether the next bytes are raw. Pushes come in between.
func (s *Stream) agreed(first byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != Verdict || first == '>' {
		return false
	}
	s.mode = Raw
	if first == '-' {
		s.mode = Framed
	}
	return s.mode == Raw
}

// emit gives obs a frame once it is whole.
func (s *Stream) emit(b []byte, whole bool, kind resp.Kind, obs Observer) {
	if obs == nil {
		return
	}
	if !whole || len(s.frame) > 0 {
		s.frame = append(s.frame, b...)
		b = s.frame
	}
	if !whole {
		obs.Holding(len(s.frame))
		return
	}
	obs.Push(b, kind)
	if cap(s.frame) > maxKeptFrame {
		s.frame = nil
	}
	s.frame = s.frame[:0]
}

// maxKeptFrame bounds the memory a stream keeps for assembling frames after a large one has passed.
const maxKeptFrame = 64 << 10

func (s *Stream) flushTouched() {
	s.settled.Store(s.done)
	if s.meek.Load() {
		s.relent()
	}
	for i, to := range s.touched {
		to.Flush()
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
}

// relent wakes the writer of a meek stream, which may have left bytes. It is called when requests have been answered.
func (s *Stream) relent() {
	s.mu.Lock()
	ring := s.asleep && s.state == up && len(s.out) > 0
	if ring {
		s.asleep = false
	}
	s.mu.Unlock()
	if ring {
		s.ring()
	}
}
