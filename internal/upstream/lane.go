package upstream

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// A Lane is a shared, ordered connection to Redis. Its sessions' commands are written in the order in which they were
// appended, many at a time, and each reply goes to the session that asked. It reconnects by itself; while it is down it
// refuses commands at once.
type Lane struct {
	id     Identity
	mover  Mover // nil: two goroutines move its bytes
	stream *stream
	stop   chan struct{} // closed by close
	once   sync.Once

	rejected atomic.Bool // Redis has refused the credentials

	// Guarded by Upstream.mu.
	users  int
	unused time.Time // since when users is 0
}

// Identity of the lane's connection.
func (l *Lane) Identity() Identity { return l.id }

// Append sends n commands, b, on behalf of to. It copies b and does not block. ErrDown means that nothing was sent.
func (l *Lane) Append(b []byte, to Receiver, n int) error { return l.stream.append(b, to, n) }

// Notes of the lane's connection.
func (l *Lane) Notes() *Notes { return &l.stream.notes }

// Rejected reports whether Redis has refused the identity's credentials. Such a lane is of no use any more; the next call of
// Upstream.Lane asks Redis again.
func (l *Lane) Rejected() bool { return l.rejected.Load() }

func (l *Lane) closed() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

func (l *Lane) close() { l.once.Do(func() { close(l.stop) }) }

// serve moves the lane's bytes until its connection ends, and closes it.
func (l *Lane) serve(nc net.Conn) error {
	if l.mover == nil {
		return serve(nc, l.stream, l.stop)
	}
	return l.mover.Drive(nc, l.stop)
}

// steady is how long a connection must have lasted for its loss not to count as a failure to connect.
const steady = time.Second

// run keeps the lane connected until it is closed.
func (l *Lane) run(u *Upstream) {
	ctx, cancel := untilClosed(l.stop)
	defer cancel()
	log := u.opts.Logger.With(zap.Stringer("identity", l.id))
	var wait backoff
	reconnected := false
	for {
		nc, err := u.dial(ctx, l.id)
		if l.closed() {
			if err == nil {
				_ = nc.Close() // the lane was closed while it connected
			}
			l.stream.refuse(ErrDown)
			return
		}
		if isRejected(err) && !u.own(l.id) {
			log.Warn("upstream does not accept the identity any more", zap.Error(err))
			u.forget(l)
			l.rejected.Store(true)
			l.stream.refuse(err)
			return
		}
		if err == nil {
			since := time.Now()
			u.laneUp(reconnected)
			reconnected = true
			log.Debug("lane connected")
			err = l.serve(nc)
			if l.closed() {
				l.stream.end(ErrDown, down)
				return
			}
			log.Warn("lane lost its connection", zap.Error(err))
			// One attempt follows at once: a Redis that closed a single connection is there again immediately. One that
			// closes again and again is left alone for a while.
			if time.Since(since) >= steady {
				wait = backoff{}
			}
			if wait.unused() {
				wait.next()
				l.stream.end(err, connecting)
				continue
			}
		}
		l.stream.refuse(err)
		delay := wait.next()
		log.Warn("upstream not reachable", zap.Error(err), zap.Duration("retry_in", delay))
		u.heard(err)
		select {
		case <-time.After(delay):
		case <-l.stop:
			return
		}
	}
}
