package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
)

// Frames is the handler of a command that any number of frames answers: a subscription command, or an EXEC with such
// commands. Each frame that comes is given to confirm if awaits says so, else to Take.
type Frames struct {
	session reply.Session
	subs    *Subscriptions
	muted   bool         // the client sees no replies; it gets confirmations all the same, as from Redis
	exec    *reply.Reply // handles the array that is the reply to an EXEC; nil: it has come, or there is none
	list    []Step       // the commands that the frames answer, in order; of an EXEC, those behind its array. Left 0: see confirm
}

// AwaitReply is the handler of a subscription command with left arguments, of which each is confirmed.
func AwaitReply(s reply.Session, subs *Subscriptions, muted bool, verb string, left int) *Frames {
	return &Frames{session: s, subs: subs, muted: muted, list: []Step{{Verb: verb, Left: left}}}
}

// AwaitExec is the handler of an EXEC of n commands, of which steps matter. exec handles the reply to the EXEC itself.
func AwaitExec(s reply.Session, subs *Subscriptions, exec *reply.Reply, n int, steps []Step) *Frames {
	list := make([]Step, n)
	for _, step := range steps {
		list[step.Index] = step
	}
	return &Frames{session: s, subs: subs, muted: exec.Muted, exec: exec, list: list}
}

// awaits reports whether the next frame may be a confirmation of that kind.
func (f *Frames) awaits(verb string) bool {
	return f.exec == nil && len(f.list) > 0 && verb != "" && f.list[0].Verb == verb
}

// confirm takes a confirmation. A command without arguments ends all subscriptions of its kind, and has a confirmation
// for each, but at least one.
func (f *Frames) confirm(verb string, count int64) {
	head := &f.list[0]
	if head.Left == 0 {
		head.Left = int(max(1, f.subs.countOf(verb)))
	}
	f.subs.confirm(verb, count)
	if head.Left--; head.Left == 0 {
		f.list = f.list[1:]
	}
}

// done is the number of commands of the client that have been answered in full.
func (f *Frames) done() int {
	if f.exec == nil && len(f.list) == 0 {
		return 1
	}
	return 0
}

// due is the number of commands whose frames have not come. f may be nil.
func (f *Frames) due() int {
	if f == nil {
		return 0
	}
	return len(f.list)
}

// Take implements reply.Handler: b is a whole frame, and no confirmation.
func (f *Frames) Take(at reply.ID, b []byte, n int, _ bool) int {
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
func (f *Frames) executed(b []byte) (seen []byte) {
	if !f.muted {
		seen = append(seen, b[:bytes.IndexByte(b, '\n')+1]...)
	}
	for _, elem := range Elements(b) {
		verb, count := ReadPubSubFrame(elem)
		switch {
		case f.awaits(verb):
			f.confirm(verb, count)
		case elem[0] == '>', f.subs.subscribed() && IsMessage(verb):
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
func (f *Frames) reply(b []byte) []byte {
	if len(f.list) == 0 {
		return b
	}
	head := f.list[0]
	f.list = f.list[1:]
	if head.Apply != nil {
		head.Apply(b)
	}
	if head.Rewrite != nil {
		b = head.Rewrite(b)
	}
	return b
}

// Lost implements reply.Handler.
func (f *Frames) Lost(at reply.ID, _ int, _ bool) {
	switch {
	case f.session.Gone():
	case f.exec != nil:
		f.exec.Lost(at, 1, false)
	case !f.muted:
		f.session.Refuse(at, len(f.list))
	}
}

var _ reply.Handler = (*Frames)(nil)
