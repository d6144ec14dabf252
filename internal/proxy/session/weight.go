package session

// This file tells which sessions have large replies, and bounds the outstanding commands of a session whose replies are
// unknown.
//
// Redis keeps unsent replies in its memory, and may close a connection with many of them (client-output-buffer-limit,
// maxmemory-clients). The end of a shared lane ends the connections of other clients too, and on any lane small replies
// wait behind large ones. So a session with large replies uses a lane that only such sessions share.

// The bounds.
const (
	// largeBurst is the number of bytes of replies, between two moments without anything outstanding, that makes a
	// session bulky.
	largeBurst = 1 << 20

	// calmBursts is the number of smaller bursts in a row that makes it ordinary again. A session that sends scripts
	// among other commands stays on the lane for scripts as long.
	calmBursts = 64

	// If Redis closes connections that have much to send, a new session sends no read beyond a window of outstanding
	// commands, because the size of its replies is not known yet. The window grows fourfold each time that all commands
	// have been answered, and is open after the last. Without such a limit there is no window: commands that Redis has
	// been sent run even if the client closes at once.
	firstWindow, lastWindow = 16, 1024
)

// weight measures the size of a session's replies.
type weight struct {
	Burst  int // bytes since nothing was outstanding
	calm   int // smaller bursts until the session is ordinary again; 0: it is
	Window int // 0: open
	Mixed  int // bursts for which the session stays on the lane for scripts
}

// bulky reports whether the session has large replies.
func (w *weight) bulky() bool { return w.calm > 0 }

// weigh is called when nothing is outstanding. It reports whether the session now belongs on another lane.
func (w *weight) weigh() (changed bool) {
	was, burst := w.bulky(), w.Burst
	w.Burst = 0
	w.Mixed = max(0, w.Mixed-1)
	if w.Window > 0 {
		if w.Window *= 4; w.Window > lastWindow {
			w.Window = 0
		}
	}
	switch {
	case burst >= largeBurst:
		w.calm = calmBursts
	case was:
		w.calm--
	}
	return w.bulky() != was
}
