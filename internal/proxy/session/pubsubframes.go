package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/pubsub"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// frames is the handler of a command that any number of frames answers: a subscription command, or an EXEC with such
// commands. Each frame that comes is given to confirm if awaits says so, else to Take.
type frames struct {
	session reply.Session
	subs    *subscriptions
	muted   bool         // the client sees no replies; it gets confirmations all the same, as from Redis
	exec    *reply.Reply // handles the array that is the reply to an EXEC; nil: it has come, or there is none
	// The commands that the frames answer, in order; of an EXEC, those behind its array. Left 0: see confirm.
	list []step
}

// framesOf is the handler of a subscription command with left arguments, of which each is confirmed.
func framesOf(s reply.Session, subs *subscriptions, muted bool, verb string, left int) *frames {
	return &frames{session: s, subs: subs, muted: muted, list: []step{{verb: verb, left: left}}}
}

// framesOfExec is the handler of an EXEC of n commands, of which steps matter. exec handles the reply to the EXEC
// itself.
func framesOfExec(s reply.Session, subs *subscriptions, exec *reply.Reply, n int, steps []step) *frames {
	list := make([]step, n)
	for _, step := range steps {
		list[step.index] = step
	}
	return &frames{session: s, subs: subs, muted: exec.Muted, exec: exec, list: list}
}

// awaits reports whether the next frame may be a confirmation of that kind.
func (f *frames) awaits(verb string) bool {
	return f.exec == nil && len(f.list) > 0 && verb != "" && f.list[0].verb == verb
}

// confirm takes a confirmation. A command without arguments ends all subscriptions of its kind, and has a confirmation
// for each, but at least one.
func (f *frames) confirm(verb string, count int64) {
	head := &f.list[0]
	if head.left == 0 {
		head.left = int(max(1, f.subs.countOf(verb)))
	}
	f.subs.confirm(verb, count)
	if head.left--; head.left == 0 {
		f.list = f.list[1:]
	}
}

// done is the number of commands of the client that have been answered in full.
func (f *frames) done() int {
	if f.exec == nil && len(f.list) == 0 {
		return 1
	}
	return 0
}

// due is the number of commands whose frames have not come. f may be nil.
func (f *frames) due() int {
	if f == nil {
		return 0
	}
	return len(f.list)
}

// Take implements reply.Handler: b is a whole frame, and no confirmation.
func (f *frames) Take(at reply.ID, b []byte, n int, _ bool) int {
	if f.exec == nil {
		if b = f.reply(b); !f.muted {
			f.session.Put(at, b, false)
		}
		return f.done()
	}
	exec := f.exec
	f.exec = nil
	if b[0] != '*' || b[1] == '-' { // nothing has been executed
		f.list = nil
		return exec.Take(at, b, n, false)
	}
	exec.Done(b)
	if words := f.executed(b); len(words) > 0 {
		f.session.Put(at, words, false)
	}
	return f.done()
}

// executed reads the array of the reply to an EXEC, and returns the part that the client gets. Subscription commands
// answer with any number of frames in the place of one element, so frames behind the array may still belong to the
// transaction. A client that sees no replies gets the confirmations and the messages in the array.
func (f *frames) executed(b []byte) (seen []byte) {
	if !f.muted {
		seen = append(seen, b[:bytes.IndexByte(b, '\n')+1]...)
	}
	elems, _ := resp.Elements(b)
	for _, elem := range elems {
		verb, count := readFrame(elem)
		switch {
		case f.awaits(verb):
			f.confirm(verb, count)
		case elem[0] == '>', f.subs.subscribed() && pubsub.IsMessage(verb):
			f.subs.confirm(verb, count)
		default:
			if elem = f.reply(elem); f.muted {
				continue
			}
		}
		seen = append(seen, elem...)
	}
	return seen
}

// reply takes the reply to a command that is no subscription command, or was refused. It returns the reply as the
// client sees it.
func (f *frames) reply(b []byte) []byte {
	if len(f.list) == 0 {
		return b
	}
	head := f.list[0]
	f.list = f.list[1:]
	if head.apply != nil {
		head.apply(b)
	}
	if head.rewrite != nil {
		b = head.rewrite(b)
	}
	return b
}

// Lost implements reply.Handler.
func (f *frames) Lost(at reply.ID, _ int, _ bool) {
	switch {
	case f.session.Gone():
	case f.exec != nil:
		f.exec.Lost(at, 1, false)
	case !f.muted:
		f.session.Refuse(at, len(f.list))
	}
}

var _ reply.Handler = (*frames)(nil)
