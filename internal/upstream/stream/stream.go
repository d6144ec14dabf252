package stream

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// ErrDown says that a request was not accepted because its connection to Redis is down: nothing was sent.
var ErrDown = errors.New("upstream is down")

// errUnexpected says that Redis sent a reply without a request. The connection cannot be trusted any more.
var errUnexpected = errors.New("upstream: reply without a request")

// Mode says how a stream reads the bytes from Redis.
type Mode uint8

// The modes.
const (
	Counted Mode = iota // each request has one reply; pushes are out of band
	Framed              // whole frames go to the observer, as with RESP2 subscribers whose replies cannot be counted
	Verdict             // as framed after a refusal, which comes as a frame, and as raw after any other reply
	Raw                 // bytes go to the observer unread, as with MONITOR and replication
)

// span is a run of requests of one receiver and tag.
type span struct {
	to   Receiver
	tag  uint64
	n    int
	size int // bytes; of no meaning once some of the requests have been answered
}

// state of a stream's connection.
type state uint8

const (
	connecting state = iota // requests are accepted, and wait for the connection
	up
	resting // the next attempt to connect is some time away; a request asks for it, and waits
	down    // requests are refused
)

// writing says what the writer does, which is one goroutine or an event loop.
type writing uint8

const (
	asleep   writing = iota // it found nothing to take, and waits on wake
	atWork                  // it takes until it finds nothing, and needs no wake
	relieved                // a caller of AppendDue will call Send: the writer takes nothing
	replaced                // a caller of Send writes: the writer takes nothing
)

// A Stream is one ordered connection to Redis without its I/O.
type Stream struct {
	wake     signal // the writer has something to take
	onAppend func() // called in place of wake; set before the stream is used

	watch  func() // called when something is outstanding after nothing was; requires no locks; nil: not called
	wanted signal // a request waits for a stream that was resting

	mu                    sync.Mutex
	state                 state
	full                  []chunk       // requests not yet taken by the writer, in front of out; empty if out is
	out                   []byte        // requests not yet taken by the writer
	queue                 []span        // the receivers of full and out, in order
	sealed                int           // how many of queue, from the start, are of full
	flight                []span        // requests taken by the writer and not yet claimed by the reader
	left                  []byte        // of bytes that writeLocked has taken and the socket has not
	direct                *netio.Writer // for Send; nil: the socket cannot be written so
	lazy                  bool          // what is appended is written when Send is called; set before the stream is used
	writer                writing
	total, taken, written int64  // bytes appended, taken by the writer and written, ever
	asked                 uint64 // requests accepted since the connection began
	idle                  bool   // nothing is outstanding and watch is to be told of the next request
	fin                   bool   // nothing follows the appended bytes
	leaving               bool   // what has not been taken waits for the next connection
	empty                 func() // called once by the writer when nothing is left to take; nil: not called
	mode                  Mode
	obs                   Observer
	mark                  *Mark          // noted when the appended bytes are taken; nil: none
	writes                sync.WaitGroup // of Send, to direct
	spare                 []byte         // an emptied buffer of writeLocked

	sent    uint64        // requests taken since the connection began; guarded by mu
	last    batch         // guarded by mu
	settled atomic.Uint64 // requests answered since the connection began; stored by the reader

	scripts ScriptSet             // see Scripts
	probe   atomic.Pointer[probe] // the question that is on its way; nil: none

	in input // owned by the reader
}

// input is the reader's half of a stream: the bytes that came, and the requests that they answer. Only the reader uses
// it, and end after it.
type input struct {
	s       *Stream
	done    uint64 // settled, to be
	scan    resp.Scanner
	claimed []span // taken from flight; next is claimed[head]
	head    int
	frame   []byte // start of a frame that did not arrive whole, in framed mode or for a push
	mid     bool   // the bytes read so far end in the middle of a frame
	inPush  bool   // and that frame is a push
	touched []Receiver
}

// A signal has a value after it was given. Its size is 1, and it is never closed.
type signal chan struct{}

func (c signal) give() {
	select {
	case c <- struct{}{}:
	default:
	}
}

// New returns a stream without a connection.
func New() *Stream {
	s := &Stream{wake: make(signal, 1), wanted: make(signal, 1)}
	s.in.s = s
	return s
}

// NewLazy is New for a stream whose bytes are written when Send is called.
func NewLazy() *Stream {
	s := New()
	s.lazy = true
	return s
}

// OnAppend sets the function that is called when there are bytes to take. Without it, Wake has a value then. It is
// called before the stream is used.
func (s *Stream) OnAppend(f func()) { s.onAppend = f }

// OnBusy sets the function that is called when a request is outstanding after none was. f requires no locks. OnBusy is
// called before the stream is used.
func (s *Stream) OnBusy(f func()) { s.idle, s.watch = true, f }

// Wake has a value when there are bytes to take. It is never closed.
func (s *Stream) Wake() <-chan struct{} { return s.wake }

// Wanted has a value when a request waits for a stream that was resting. It is never closed.
func (s *Stream) Wanted() <-chan struct{} { return s.wanted }

// Append accepts n requests in b for one receiver, or returns ErrDown. It copies b.
func (s *Stream) Append(b []byte, to Receiver, tag uint64, n int) error {
	_, err := s.add(b, to, tag, n, false)
	return err
}

// AppendDue is Append for a caller that can write. due: the caller calls Send soon. Until then nothing is written.
func (s *Stream) AppendDue(b []byte, to Receiver, tag uint64, n int) (due bool, err error) {
	return s.add(b, to, tag, n, true)
}

func (s *Stream) add(b []byte, to Receiver, tag uint64, n int, canWrite bool) (due bool, err error) {
	s.mu.Lock()
	if s.state == down {
		s.mu.Unlock()
		return false, ErrDown
	}
	if s.state == resting {
		s.state = connecting
		s.wanted.give()
	}
	if need := len(s.out) + len(b); need > cap(s.out) && need > chunkSize {
		s.space(len(b))
	}
	s.out = buffers.Append(s.out, b, 0)
	s.total += int64(len(b))
	if last := len(s.queue) - 1; last >= s.sealed && s.queue[last].tag == tag && s.queue[last].to == to {
		s.queue[last].n += n
		s.queue[last].size += len(b)
	} else if n > 0 {
		s.queue = append(s.queue, span{to, tag, n, len(b)})
	}
	s.asked += uint64(n)
	ring, watch := !s.lazy && s.rouse(), s.idle
	if due = ring && canWrite && s.direct != nil; due {
		s.writer, ring = relieved, false
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
	return due, nil
}

// Note has the mark noted when the bytes that are appended next are taken.
func (s *Stream) Note(m *Mark) {
	s.mu.Lock()
	s.mark = m
	s.mu.Unlock()
}

// Moved returns the number of accepted requests, the number of these that are settled, and whether the stream is
// connected. If all are settled, watch is called for the next one.
func (s *Stream) Moved() (asked, settled uint64, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	settled = s.settled.Load()
	s.idle = s.asked == settled && s.watch != nil
	return s.asked, settled, s.state == up
}

// Scripts that the connection has run.
func (s *Stream) Scripts() *ScriptSet { return &s.scripts }

// Outstanding is the number of accepted requests that are not settled.
func (s *Stream) Outstanding() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.asked - s.settled.Load())
}

// wakeable reports whether the writer waits on wake, and could write. Requires s.mu.
func (s *Stream) wakeable() bool { return s.state == up && s.writer == asleep }

// rouse puts a writer that is wakeable to work. true: the caller rings. Requires s.mu.
func (s *Stream) rouse() (ring bool) {
	if ring = s.wakeable(); ring {
		s.writer = atWork
	}
	return ring
}

func (s *Stream) ring() {
	if s.onAppend != nil {
		s.onAppend()
		return
	}
	s.wake.give()
}

// WhenEmpty asks for a call of f, from another goroutine, when everything appended has been taken, if more than n bytes
// have not been. It reports whether f will be called, or the stream's end told.
func (s *Stream) WhenEmpty(n int, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting() <= n || s.state == down {
		return false
	}
	s.empty = f
	return true
}

// Progress returns the number of appended bytes, and the number of these that have been written or given up.
func (s *Stream) Progress() (appended, written int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.written
}

// Finish says that nothing more will be appended: this direction of the connection ends behind the appended bytes. If
// these have been written, now ends it; else the writer does.
func (s *Stream) Finish(now func()) {
	s.mu.Lock()
	s.fin = true
	written := s.wakeable() && len(s.out) == 0
	ring := !written && s.rouse() // else the next Take comes without it
	s.mu.Unlock()
	switch {
	case written:
		now()
	case ring:
		s.ring()
	}
}

// Finished reports whether all bytes have been written, and no more follow. The writer asks after a Take without bytes.
func (s *Stream) Finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fin && s.writer == asleep && len(s.out) == 0
}

// SetMode switches how further bytes are read. The caller has made sure that no reply is outstanding.
func (s *Stream) SetMode(m Mode) {
	s.mu.Lock()
	s.mode = m
	s.mu.Unlock()
}

// Observe names the receiver of out-of-band data; nil drops it.
func (s *Stream) Observe(o Observer) {
	s.mu.Lock()
	s.obs = o
	s.mu.Unlock()
}

// Open says that the connection is ready: the waiting requests may be written.
func (s *Stream) Open() {
	s.mu.Lock()
	s.state, s.writer = up, atWork
	s.mu.Unlock()
	s.ring()
}

// IsUp reports whether the stream has a connection.
func (s *Stream) IsUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == up
}

// Take returns the bytes to write next, or nil after which the writer waits on wake. The caller owns the bytes and
// returns them as spare in a later call.
func (s *Stream) Take(spare []byte) []byte {
	s.mu.Lock()
	if s.writer == relieved || s.writer == replaced {
		s.mu.Unlock()
		return nil
	}
	if len(s.left) > 0 {
		defer s.mu.Unlock()
		b := s.left
		s.left = nil
		return b
	}
	s.written = s.taken
	if s.leaving {
		s.mu.Unlock()
		return nil
	}
	if len(s.out) == 0 {
		s.writer = asleep
		empty := s.empty
		s.empty = nil
		s.mu.Unlock()
		if empty != nil {
			empty()
		}
		return nil
	}
	defer s.mu.Unlock()
	return s.takeLocked(spare)
}

// takeLocked takes the appended bytes.
func (s *Stream) takeLocked(spare []byte) []byte {
	if s.mark != nil {
		s.mark.Note()
		s.mark = nil
	}
	if len(s.full) > 0 {
		return s.takeChunk()
	}
	b := s.out
	s.out = spare[:0]
	s.taken = s.total
	s.last = batch{spans: len(s.queue), before: s.sent}
	s.sent = s.asked
	s.flight = append(s.flight, s.queue...)
	clear(s.queue)
	s.queue = s.queue[:0]
	return b
}

// ScriptSet records which scripts a connection has run, so that the server which it leads to knows their text. It is
// cleared when the connection ends. IDs are 0 to 63. Several goroutines may use it.
type ScriptSet struct{ bits atomic.Uint64 }

// Has reports whether the connection has run a script.
func (s *ScriptSet) Has(id int) bool { return s.bits.Load()&(1<<id) != 0 }

// Add records that the connection has run a script.
func (s *ScriptSet) Add(id int) { s.bits.Or(1 << id) }

// Remove records that the server has forgotten a script.
func (s *ScriptSet) Remove(id int) { s.bits.And(^(uint64(1) << id)) }
