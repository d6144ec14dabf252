package proxy

// Redis keeps what a connection has not taken yet in its memory, and may close a connection that has much there
// (client-output-buffer-limit, maxmemory-clients). On a shared lane that would cost others theirs, and small replies wait behind
// large ones in any case. So a session whose replies are large uses a lane that only such sessions share.
const (
	// largeBurst is how many bytes of replies between two moments without anything outstanding make a session one of those.
	largeBurst = 1 << 20

	// calmBursts is how many smaller bursts in a row make it ordinary again.
	calmBursts = 64

	// If Redis closes connections that have much to send, a new session sends no read beyond a window of outstanding commands,
	// because the size of its replies is not known yet. The window grows fourfold each time that all commands have been
	// answered, and is open after the last. Without such a limit there is no window: what Redis has been sent runs even if the
	// client closes at once.
	firstWindow, lastWindow = 16, 1024
)

// weight is what is known of the size of a session's replies.
type weight struct {
	burst  int // bytes since nothing was outstanding
	calm   int // smaller bursts until the session is ordinary again; 0: it is
	window int // 0: open
}

func (w *weight) bulky() bool { return w.calm > 0 }

// weigh is called when nothing is outstanding. It reports whether the session now belongs on another lane.
func (w *weight) weigh() (changed bool) {
	was, burst := w.bulky(), w.burst
	w.burst = 0
	if w.window > 0 {
		if w.window *= 4; w.window > lastWindow {
			w.window = 0
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
