package session

import "github.com/lockproxy/lockproxy/internal/proxy/reply"

// frames is the handler of a subscription command, which any number of frames answers. A confirmation of its verb is
// given to confirm, any other frame to Take.
type frames struct {
	session reply.Session
	subs    *subscriptions
	muted   bool // the client sees no replies; it gets confirmations all the same, as from Redis
	verb    string
	left    int // confirmations still to come; 0: see confirm
}

// confirm takes a confirmation, and returns the number of commands that are answered by it. A command without arguments
// ends all subscriptions of its kind, and has a confirmation for each, but at least one.
func (f *frames) confirm(count int64) (answered int) {
	if f.left == 0 {
		f.left = int(max(1, f.subs.countOf(f.verb)))
	}
	f.subs.confirm(f.verb, count)
	if f.left--; f.left > 0 {
		return 0
	}
	return 1
}

// Take implements reply.Handler: b is a whole frame, and no confirmation. So it is a refusal.
func (f *frames) Take(at reply.ID, b []byte, _ int, _ bool) int {
	if !f.muted {
		f.session.Put(at, b, false)
	}
	return 1
}

// Lost implements reply.Handler.
func (f *frames) Lost(at reply.ID, _ int, _ bool) {
	if !f.session.Gone() && !f.muted {
		f.session.Refuse(at, 1)
	}
}

var _ reply.Handler = (*frames)(nil)
