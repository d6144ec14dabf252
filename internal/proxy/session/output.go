package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// This file has the way of replies to one client: each waits in its slot for its turn, and then for the engine. It
// counts the bytes that the client has not taken. The code of this file does no I/O and has no lock.

// An output belongs to one session, which guards it.
type output struct {
	Slots  reply.Queue[upstream.Connection] // in the order of the commands
	Outbox reply.Outbox                     // bytes whose turn has come

	proxy    *Proxy
	overflow func(limit metrics.Reason, unread int)
	later    func(d time.Duration) // has judge called
	unread   int                   // bytes in all of these, and those that an engine has taken and not yet written
	behind   int64                 // Proxy.Clock since a subscriber left more unread than its soft limit; 0: it has not
	gone     bool
	watch    stopwatch // of a command that is measured
}

// open prepares the output. overflow is called when the client leaves more bytes unread than a limit allows. later has
// judge called after a time, because a client may be behind while nothing more comes for it.
func (o *output) open(p *Proxy, overflow func(limit metrics.Reason, unread int), later func(d time.Duration)) {
	o.proxy, o.overflow, o.later = p, overflow, later
}

// finish says that the client gets no more than the output so far.
func (o *output) finish() { o.gone = true }

// Gone reports whether the client gets no more than the output so far.
func (o *output) Gone() bool { return o.gone }

// Unread is the number of bytes that the client has not taken.
func (o *output) Unread() int { return o.unread }

// written says that the client has taken bytes.
func (o *output) written(bytes int) {
	if o.unread -= bytes; o.watch.Ends() {
		o.timed()
	}
	if o.behind != 0 && o.unread <= o.proxy.Limits().PubSub.Soft {
		o.behind = 0
	}
}

// forget drops all output.
func (o *output) forget() {
	o.Outbox.Forget()
	o.unread = 0
}

// say gives the proxy's own reply to the last command.
func (o *output) say(b []byte) {
	if o.gone || len(b) == 0 {
		return
	}
	o.add(b, o.Slots.Say(b))
}

// put adds bytes to the replies of a slot; more: they end within one.
func (o *output) put(at reply.ID, b []byte, more bool) {
	if o.watch.Expects(uint64(at)) {
		o.watch.Replied()
	}
	if !o.gone {
		o.add(b, o.Slots.Put(at, b, more))
	}
}

// push sends out-of-band data between replies.
func (o *output) push(b []byte) {
	if !o.gone {
		o.add(b, o.Slots.Push(b))
	}
}

// message is push for a message to a subscriber. Subscribers that do not read have limits of their own, as in Redis:
// each message would be kept once for each of them.
func (o *output) message(b []byte) {
	o.push(b)
	switch limits := &o.proxy.Limits().PubSub; {
	case o.unread <= limits.Soft:
		o.behind = 0
	case o.behind == 0:
		o.behind = o.proxy.Clock.Load() + 1
		o.later(limits.SoftTime)
	}
	o.judge()
}

// judge reports a subscriber that has left too much unread, or much for too long.
func (o *output) judge() {
	limits := &o.proxy.Limits().PubSub
	if o.behind == 0 && o.unread <= limits.Hard {
		return
	}
	late := o.proxy.Clock.Load() + 1 - o.behind
	if o.unread > limits.Hard || late > limits.SoftTime.Milliseconds() {
		o.overflow(metrics.PubSubLimit, o.unread)
	}
}

// emit appends bytes to the output.
func (o *output) emit(b []byte) {
	if !o.gone {
		o.add(b, true)
	}
}

// add counts new bytes. now: they leave at once.
func (o *output) add(b []byte, now bool) {
	if now {
		o.Outbox.Append(b)
	}
	if o.unread += len(b); o.unread > o.proxy.Limits().Output {
		o.overflow(metrics.OutputLimit, o.unread)
	}
}

// move moves the replies whose turn has come.
func (o *output) move() {
	for b := o.Slots.Next(); b != nil; b = o.Slots.Next() {
		o.Outbox.Append(b)
	}
}

// time measures the next n commands, of that class and of a session of that number, if it is their turn. tick changes
// now and then.
func (o *output) time(session uint64, class, n int, tick int64) {
	if o.proxy.Counters.Traffic.Due(session, class, n, tick) {
		o.watch.Start(class, class == metrics.ClassLocal)
	}
}

// Timed reports whether the commands that are sent next are measured.
func (o *output) Timed() bool { return o.watch.Begun() }

// mark says that the measured commands are sent next, in that slot.
func (o *output) mark(at reply.ID) *upstream.Mark { return o.watch.Sent(uint64(at)) }

// timed ends a measurement: output has been written.
func (o *output) timed() {
	if class, proxy, upstream, ok := o.watch.Done(); ok {
		o.proxy.Counters.Timed(class, proxy, upstream)
	}
}
