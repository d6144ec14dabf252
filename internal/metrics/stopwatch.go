// Package metrics measures single commands on their way through the proxy: how long the proxy has them, and how long
// Redis.
//
//	Start ── the proxy ──► Mark.Note ── Redis ──► Answered ── the proxy ──► Done
//
// The clock is read for the commands that are measured only.
//
// Goroutines: none. The owner of a Watch guards it; a Mark is noted by another goroutine.
package metrics

import (
	"sync/atomic"
	"time"
)

// epoch is any moment: to measure from it reads only the monotonic clock, which takes half of the time.
var epoch = time.Now()

// Mark is the moment at which a command was handed to the socket. The zero value has none.
type Mark struct{ at atomic.Int64 }

// Note notes the moment.
func (m *Mark) Note() { m.at.Store(int64(time.Since(epoch))) }

// state is how far the measured command has come.
type state uint8

const (
	idle     state = iota // no command is measured
	begun                 // it has not been sent
	sent                  // Redis has it, or it is on its way there
	answered              // the reply has not been written
)

// Watch measures one command at a time. The zero value is ready.
type Watch struct {
	state    state
	class    uint8
	stays    bool          // it is not to be sent
	tag      uint64        // of the command
	began    time.Duration // since epoch, as all moments here
	answered time.Duration
	taken    Mark
}

// Start begins to measure a command of that class. stays says that the proxy answers it itself. An earlier command is
// given up.
func (w *Watch) Start(class int, stays bool) {
	w.state, w.class, w.stays = begun, uint8(class), stays
	w.taken.at.Store(0)
	w.began = time.Since(epoch)
}

// Begun reports whether a command is measured that is to be sent.
func (w *Watch) Begun() bool { return w.state == begun && !w.stays }

// Sent says that the command is about to be sent with that tag. The mark is to be noted when it is handed to the
// socket.
func (w *Watch) Sent(tag uint64) *Mark {
	w.state, w.tag = sent, tag
	return &w.taken
}

// Expects reports whether it is the reply to the measured command that has that tag.
func (w *Watch) Expects(tag uint64) bool { return w.state == sent && w.tag == tag }

// Answered says that the reply has come.
func (w *Watch) Answered() { w.state, w.answered = answered, time.Since(epoch) }

// Ends reports whether the measurement ends when output is written.
func (w *Watch) Ends() bool { return w.state == answered || w.state == begun && w.stays }

// Done says that the reply has been written. proxy is the time in the proxy, upstream that from the socket to Redis
// until the reply; it is negative for a command that was not sent. ok is false if a moment is missing.
func (w *Watch) Done() (class int, proxy, upstream time.Duration, ok bool) {
	now, taken := time.Since(epoch), time.Duration(w.taken.at.Load())
	was := w.state
	w.state = idle
	switch {
	case was == begun:
		return int(w.class), now - w.began, -1, true
	case was != answered || taken < w.began || w.answered < taken:
		return 0, 0, 0, false
	}
	return int(w.class), taken - w.began + now - w.answered, w.answered - taken, true
}
