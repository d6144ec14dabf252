package session

import (
	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
)

// time measures the next n commands, of that class and of a session of that number, if it is their turn. tick changes
// now and then.
func (o *Output[C]) time(session uint64, class, n int, tick int64) {
	if o.proxy.Counters.Traffic.Due(session, class, n, tick) {
		o.watch.Start(class, class == metrics.ClassLocal)
	}
}

// Timed reports whether the commands that are sent next are measured.
func (o *Output[C]) Timed() bool { return o.watch.Begun() }

// mark says that the measured commands are sent next, in that slot.
func (o *Output[C]) mark(at reply.ID) *metrics.Mark { return o.watch.Sent(uint64(at)) }

// timed ends a measurement: output has been written.
func (o *Output[C]) timed() {
	if class, proxy, upstream, ok := o.watch.Done(); ok {
		o.proxy.Counters.Timed(class, proxy, upstream)
	}
}
