package upstream

import (
	"errors"
	"sync"
	"sync/atomic"

	"lockproxy/internal/buffers"
	"lockproxy/internal/direct"
	"lockproxy/internal/resp"
)

// ErrDown says that a request was not accepted because its connection to Redis is down: nothing was sent.
var ErrDown = errors.New("upstream is down")

// errUnexpected says that Redis sent a reply without a request. The connection cannot be trusted any more.
var errUnexpected = errors.New("upstream: reply without a request")

// mode says how a stream reads what arrives.
type mode uint8

const (
	counted mode = iota // each request has one reply; pushes are out of band
	framed              // whole frames go to the observer, as with RESP2 subscribers whose replies cannot be counted
	verdict             // as framed after a refusal, which comes as a frame, and as raw after any other reply
	raw                 // bytes go to the observer unread, as with MONITOR and replication
)

// span is a run of requests of one receiver and tag.
type span struct {
	to   Receiver
	tag  uint64
	n    int
	size int // bytes; of no meaning once the requests have been taken
}

// state of a stream's connection.
type state uint8

const (
	connecting state = iota // requests are accepted and wait for the connection
	up
	resting // the next attempt to connect is some time away; a request asks for it, and waits
	down    // requests are refused
)

// stream is one ordered connection to Redis without its I/O.
type stream struct {
	scripts ScriptSet

	wake     chan struct{} // size 1, never closed: the writer has something to take
	onAppend func()        // rung instead of wake; set before the stream is used

	watch  func()        // called when something is outstanding after nothing was; requires no locks; nil: not called
	wanted chan struct{} // size 1, never closed: a request waits for a stream that was resting

	mu                    sync.Mutex
	state                 state
	out                   []byte         // requests not yet taken by the writer
	queue                 []span         // the receivers of out, in order
	flight                []span         // requests taken by the writer and not yet claimed by the reader
	left                  []byte         // of bytes that send has taken and the socket has not
	direct                *direct.Writer // for send; nil: the socket cannot be written so
	lazy                  bool           // what is appended is written when send is called; set before the stream is used
	asleep                bool           // the writer found nothing and waits on wake
	total, taken, written int64          // bytes appended, taken by the writer and written, ever
	asked                 uint64         // requests accepted since the connection began
	idle                  bool           // nothing is outstanding and watch is to be told of the next request
	fin                   bool           // nothing follows the appended bytes
	empty                 func()         // called once by the writer when nothing is left to take; nil: not called
	mode                  mode
	obs                   Observer

	sent    uint64        // requests that takeMeek has taken since the connection began; guarded by mu
	meek    atomic.Bool   // few requests may be outstanding
	settled atomic.Uint64 // requests answered since the connection began; stored by the reader

	// Owned by the reader.
	done    uint64 // settled, to be
	scan    resp.Scanner
	claimed []span // taken from flight; next is claimed[head]
	head    int
	frame   []byte // start of a frame that did not arrive whole, in framed mode or for a push
	mid     bool   // the bytes read so far end in the middle of a frame
	inPush  bool   // and that frame is a push
	touched []Receiver
}

func newStream() *stream {
	return &stream{wake: make(chan struct{}, 1), wanted: make(chan struct{}, 1), asleep: true}
}

// append accepts n requests in b for one receiver, or returns ErrDown. It copies b.
func (s *stream) append(b []byte, to Receiver, tag uint64, n int) error {
	s.mu.Lock()
	if s.state == down {
		s.mu.Unlock()
		return ErrDown
	}
	if s.state == resting {
		s.want()
	}
	s.out = buffers.Append(s.out, b, 0)
	s.total += int64(len(b))
	if last := len(s.queue) - 1; last >= 0 && s.queue[last].tag == tag && s.queue[last].to == to {
		s.queue[last].n += n
		s.queue[last].size += len(b)
	} else if n > 0 {
		s.queue = append(s.queue, span{to, tag, n, len(b)})
	}
	s.asked += uint64(n)
	ring, watch := s.asleep && s.state == up && !s.lazy, s.idle
	if ring {
		s.asleep = false
	}
	if watch {
		s.idle = false
	}
	s.mu.Unlock()
	if ring {
		s.ring()
	}
	if watch {
		s.watch()
	}
	return nil
}

// moved returns how many requests have been accepted and how many of them are settled, and whether the stream is connected. If
// all are settled, watch is told of the next one.
func (s *stream) moved() (asked, settled uint64, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	settled = s.settled.Load()
	s.idle = s.asked == settled && s.watch != nil
	return s.asked, settled, s.state == up
}

// want asks for a connection. Requires s.mu.
func (s *stream) want() {
	s.state = connecting
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

func (s *stream) ring() {
	if s.onAppend != nil {
		s.onAppend()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// whenEmpty asks for a call of f, from another goroutine, when everything appended has been taken, if more than n bytes have
// not been. It reports whether f will be called, or the stream's end told.
func (s *stream) whenEmpty(n int, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.out) <= n || s.state == down {
		return false
	}
	s.empty = f
	return true
}

// progress returns how many bytes have been appended, and how many of them have been written or given up.
func (s *stream) progress() (appended, written int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.written
}

// finish says that nothing more will be appended: the writer ends its direction of the connection behind the appended bytes.
func (s *stream) finish() {
	s.mu.Lock()
	done := s.fin || s.state == down
	s.fin = true
	s.mu.Unlock()
	if !done {
		s.ring()
	}
}

// finished reports whether the writer has written everything there will be.
func (s *stream) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fin && len(s.out) == 0
}

// setMode switches how further bytes are read. The caller has made sure that no reply is outstanding.
func (s *stream) setMode(m mode) {
	s.mu.Lock()
	s.mode = m
	s.mu.Unlock()
}

// observe names who gets out-of-band data; nil drops it.
func (s *stream) observe(o Observer) {
	s.mu.Lock()
	s.obs = o
	s.mu.Unlock()
}

// open says that the connection is ready: what waited may be written.
func (s *stream) open() {
	s.mu.Lock()
	s.state = up
	s.asleep = false
	s.mu.Unlock()
	s.ring()
}

func (s *stream) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == up
}

// take returns the bytes to write next, or nil after which the writer waits on wake. The caller owns the bytes and gives
// them back as spare in a later call.
func (s *stream) take(spare []byte) []byte {
	s.mu.Lock()
	if len(s.left) > 0 {
		defer s.mu.Unlock()
		b := s.left
		s.left = nil
		return b
	}
	s.written = s.taken
	if len(s.out) == 0 {
		s.asleep = true
		empty := s.empty
		s.empty = nil
		s.mu.Unlock()
		if empty != nil {
			empty()
		}
		return nil
	}
	defer s.mu.Unlock()
	if s.meek.Load() {
		b := s.takeMeek(spare)
		s.asleep = b == nil
		return b
	}
	return s.takeLocked(spare)
}

// takeLocked takes the appended bytes.
func (s *stream) takeLocked(spare []byte) []byte {
	b := s.out
	s.out = spare[:0]
	s.taken = s.total
	s.flight = append(s.flight, s.queue...)
	clear(s.queue)
	s.queue = s.queue[:0]
	return b
}

// end marks the stream broken and tells every receiver and the observer. The reader and the writer have returned.
// next is the state afterwards: down, connecting if an attempt to reconnect follows at once, or resting.
//
// Requests that have not been taken wait for the next connection if one follows at once and their receivers want that. Others
// are refused only when the outcome of all earlier ones has been told: a receiver answers in the order in which it hears of them.
func (s *stream) end(err error, next state) {
	s.mu.Lock()
	sent := append(s.claimed[s.head:], s.flight...)
	unsent, out := s.queue, s.out
	obs := s.obs
	s.state, s.mode, s.asleep = connecting, counted, true
	s.out, s.left, s.queue, s.flight, s.direct = nil, nil, nil, nil, nil
	s.asked, s.done, s.sent = 0, 0, 0
	s.settled.Store(0)
	s.scripts.clear()
	s.mu.Unlock()

	s.claimed, s.head, s.frame, s.mid, s.inPush = nil, 0, nil, false, false
	s.scan.Reset()
	for _, sp := range sent {
		sp.to.Lost(sp.tag, sp.n, true)
		sp.to.Flush()
	}
	if next == connecting {
		unsent = s.keep(unsent, out)
	}
	var empty func()
	for more := true; more; unsent, empty, more = s.settle(next) {
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

// keep puts requests whose receivers want them to wait back before those that have come meanwhile, and returns the others.
func (s *stream) keep(list []span, out []byte) (others []span) {
	var kept []span
	var bytes []byte
	for _, sp := range list {
		if sp.to.Keeps() {
			kept = append(kept, sp)
			bytes = append(bytes, out[:sp.size]...)
		} else {
			others = append(others, sp)
		}
		out = out[sp.size:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.out = append(kept, s.queue...), append(bytes, s.out...)
	for _, sp := range kept {
		s.asked += uint64(sp.n)
	}
	return others
}

// settle enters the state that follows the end, unless it is down and requests have been accepted meanwhile: then it returns
// them, to be told first. At last it returns who waits for everything to have been taken.
func (s *stream) settle(next state) (unsent []span, empty func(), more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next == down {
		unsent = s.queue
		s.out, s.queue, s.asked = nil, nil, 0
		if len(unsent) > 0 {
			return unsent, nil, true
		}
	}
	s.taken = s.total - int64(len(s.out))
	s.written = s.taken
	if s.state = next; next == resting && len(s.queue) > 0 {
		s.want()
	}
	empty, s.empty = s.empty, nil
	return nil, empty, false
}

// refuse turns a stream that has no connection into one that is down.
func (s *stream) refuse(err error) { s.end(err, down) }

// rest says that an attempt to connect has failed. The commands that waited for it are reported as unsent.
func (s *stream) rest(err error) {
	select {
	case <-s.wanted: // by requests that this refuses
	default:
	}
	s.end(err, resting)
}
