package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream"
)

// measured is how far the measured command has come.
type measured uint8

const (
	measuresNone     measured = iota
	measuresBegun             // it has not been sent
	measuresSent              // Redis has it, or it is on its way there
	measuresAnswered          // the reply has not been written
)

// A stopwatch measures one command of a session at a time: how long the proxy has it, and how long Redis.
//
//	Start ── the proxy ──► Mark.Note ── Redis ──► Replied ─── the proxy ──► Done
//
// The zero value is ready. The session guards it; the mark is noted by another goroutine.
type stopwatch struct {
	state    measured
	class    uint8
	stays    bool          // it is not to be sent
	tag      uint64        // of the command
	began    time.Duration // on the clock of the mark, as all moments here
	answered time.Duration
	taken    upstream.Mark
}

// Start begins to measure a command of that class. stays says that the proxy answers it itself. An earlier command is
// given up.
func (w *stopwatch) Start(class int, stays bool) {
	w.state, w.class, w.stays = measuresBegun, uint8(class), stays
	w.taken.Forget()
	w.began = w.taken.Now()
}

// Begun reports whether a command is measured that is to be sent.
func (w *stopwatch) Begun() bool { return w.state == measuresBegun && !w.stays }

// Sent says that the command is about to be sent with that tag. The mark is to be noted when it is handed to the
// socket.
func (w *stopwatch) Sent(tag uint64) *upstream.Mark {
	w.state, w.tag = measuresSent, tag
	return &w.taken
}

// Expects reports whether it is the reply to the measured command that has that tag.
func (w *stopwatch) Expects(tag uint64) bool { return w.state == measuresSent && w.tag == tag }

// Replied says that the reply has come.
func (w *stopwatch) Replied() { w.state, w.answered = measuresAnswered, w.taken.Now() }

// Ends reports whether the measurement ends when output is written.
func (w *stopwatch) Ends() bool {
	return w.state == measuresAnswered || w.state == measuresBegun && w.stays
}

// Done says that the reply has been written. proxy is the time in the proxy, upstream that from the socket to Redis
// until the reply; it is negative for a command that was not sent. ok is false if a moment is missing.
func (w *stopwatch) Done() (class int, proxy, upstream time.Duration, ok bool) {
	now, taken := w.taken.Now(), w.taken.At()
	was := w.state
	w.state = measuresNone
	switch {
	case was == measuresBegun:
		return int(w.class), now - w.began, -1, true
	case was != measuresAnswered || taken < w.began || w.answered < taken:
		return 0, 0, 0, false
	}
	return int(w.class), taken - w.began + now - w.answered, w.answered - taken, true
}
