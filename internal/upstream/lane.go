package upstream

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/stopwatch"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/handshake"
	"github.com/lockproxy/lockproxy/internal/upstream/retire"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/wire"
)

// A Lane is a shared, ordered connection to Redis. Its sessions' commands are written in the order in which they were
// appended, many at a time, and each reply goes to the session that asked. It reconnects by itself. While it has no connection,
// commands wait for the outcome of the next attempt, which they bring forward. If it fails, they are reported as unsent.
type Lane struct {
	target dial.Target // immutable
	full   bool        // there was no place for it
	mover  wire.Mover  // nil: two goroutines move its bytes
	stream *stream.Stream
	stop   chan struct{} // closed by close
	once   sync.Once
	open   retire.Connection

	contact chan struct{} // size 1, never closed: Redis has been reached while the lane rested

	rejected  atomic.Bool // Redis has refused the credentials
	unsettled atomic.Bool // its users must Move before their next command

	refusal handshake.Refusal

	set    *laneSet // immutable
	number int      // in the set; immutable

	// Guarded by Upstream.mu.
	users  int
	unused time.Time // since when users is 0
}

func newLane(key laneKey, set *laneSet, number int) *Lane {
	l := &Lane{
		target: key.target, set: set, number: number, stream: stream.New(), stop: make(chan struct{}), contact: make(chan struct{}, 1),
		unused: time.Now(),
	}
	if set != nil {
		l.stream.OnBusy(set.watch)
	}
	if key.driver != nil {
		l.mover = key.driver.Attach(wire.New(l.stream))
		l.stream.OnAppend(l.mover.Ring)
	}
	return l
}

// At is the server that the lane leads to.
func (l *Lane) At() Node { return l.target.At }

// Identity of the lane's connection.
func (l *Lane) Identity() Identity { return l.target.ID }

// Append sends n commands, b, on behalf of to, which gets the tag back with the replies. It copies b and does not block. ErrDown
// means that nothing was sent.
func (l *Lane) Append(b []byte, to Receiver, tag uint64, n int) error {
	return l.stream.Append(b, to, tag, n)
}

// Note has the mark noted when what is appended next is handed to the socket. A mark before that is given up.
func (l *Lane) Note(m *stopwatch.Mark) { stream.Note(l.stream, m) }

// Progress returns the number of bytes that all sessions have appended, and the number of these that have been written or given up.
func (l *Lane) Progress() (appended, written int64) { return l.stream.Progress() }

// status describes the lane. Requires Upstream.mu.
func (l *Lane) status() LaneStatus {
	s := LaneStatus{
		Identity: l.target.ID, At: l.target.At, Use: l.set.lineup.Use(l.number), Up: l.stream.IsUp(), Users: l.users, Commands: stream.Outstanding(l.stream),
	}
	appended, written := l.stream.Progress()
	s.Bytes = appended - written
	return s
}

// Scripts that the lane's connection has run.
func (l *Lane) Scripts() *ScriptSet { return l.stream.Scripts() }

// Full reports whether the lane refuses everything because there was no place for it. The next call of Upstream.Lane may find
// one.
func (l *Lane) Full() bool { return l.full }

// Refusal is the reply to commands if the lane is not connected: Redis's own if it refused a step of the handshake, being busy with a
// script for example, else -NOUPSTREAM with the cause. nil: no attempt to connect has failed.
func (l *Lane) Refusal() []byte { return l.refusal.Get() }

// Hopeless reports whether the lane refuses commands for another reason than that its server is away, so that none of them waits for a successor.
func (l *Lane) Hopeless() bool { return l.full || l.Rejected() || l.refusal.IsFinal() }

// Unsettled reports whether a user with nothing outstanding on the lane must Move before the next command: the lane stands
// still, or it does not take all commands at present. It costs one load.
func (l *Lane) Unsettled() bool { return l.unsettled.Load() }

// Rejected reports whether Redis has refused the identity's credentials. Such a lane has no further use. The next call of
// Upstream.Lane asks Redis again.
func (l *Lane) Rejected() bool { return l.rejected.Load() }

func (l *Lane) inUse(u *Upstream) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.users > 0
}

func (l *Lane) closed() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

func (l *Lane) close() {
	l.once.Do(func() {
		close(l.stop)
		l.open.End()
	})
}

// serve moves the lane's bytes until its connection ends, and closes it.
func (l *Lane) serve(u *Upstream, nc net.Conn) error {
	over := l.open.Begin(nc)
	defer l.open.End()
	if l.closed() || u.dialer.IsElsewhere(l.target.At, nc) {
		l.open.End() // its owner may have looked before begin
	}
	if l.mover == nil {
		return wire.Serve(nc, l.stream, over)
	}
	return l.mover.Drive(nc, over)
}

// run keeps the lane connected until it is closed.
func (l *Lane) run(u *Upstream) {
	ctx, cancel := dial.UntilClosed(l.stop)
	defer cancel()
	log := u.opts.Logger.With(zap.Stringer("identity", l.target.ID))
	var wait dial.Backoff
	var fix dial.Repair
	reconnected := false
	for !l.closed() {
		nc, err := u.dialer.Open(ctx, l.target)
		if l.closed() {
			if err == nil {
				u.dialer.HangUp(nc) // the lane was closed while it connected
			}
			break
		}
		if handshake.IsRejected(err) && !u.opts.own(l.target.ID) {
			u.contacts.Entries.Write(zap.WarnLevel, "upstream refuses the credentials of a client", "", zap.Stringer("identity", l.target.ID), zap.Error(err))
			u.forget(l)
			l.rejected.Store(true)
			l.stream.Refuse(err)
			return
		}
		if err != nil {
			l.refusal.Note(err, u.opts.own(l.target.ID)) // before the lane's requests are reported
			l.stream.Rest(err)
			delay, pause := wait.Next()
			l.laneFailed(u, err)
			if l.inUse(u) {
				log.Debug("lane not connected", zap.Error(err), logging.Seconds("retry_in", delay))
			}
			l.rest(u.dialer, err, delay, pause)
			continue
		}
		wait = dial.Backoff{}
		since := time.Now()
		l.refusal.Note(nil, false)
		u.laneUp(l, reconnected)
		reconnected = true
		log.Debug("lane connected")
		l.stream.MakeMeek(!l.target.ID.Authenticated() && u.NeedsAuth())
		err = l.serve(u, nc)
		u.dialer.Lost(l.target.At, nc, err)
		u.dialer.Census().Closed(nc)
		if l.closed() {
			break
		}
		u.lost.Add(1)
		log.Debug("lane lost its connection", zap.Error(err))
		if !u.dialer.IsElsewhere(l.target.At, nc) { // else the proxy has ended it, because the server has moved
			u.contacts.Entries.Write(zap.WarnLevel, "a connection to redis was lost", "", zap.Stringer("identity", l.target.ID), zap.Error(err))
		}
		l.stream.Reconnect(err)
		u.laneLost(l)
		l.sleep(fix.After(time.Since(since)), nil)
	}
	l.stream.Refuse(stream.ErrDown)
}

// spread is the time over which lanes without waiting commands come back after an outage.
const spread = 50 * time.Millisecond

// rest waits for the time of the next attempt: after delay; after pause if a command waits for it; or soon after a successful contact
// of another connection.
func (l *Lane) rest(d *dial.Dialer, err error, delay, pause time.Duration) {
	unreached := d.Await(l.target.At, l.contact, err)
	defer d.Forget(l.target.At, l.contact)
	if !unreached {
		l.sleep(pause, nil)
		return
	}
	wanted := l.stream.Wanted()
	late, early := time.NewTimer(delay), time.NewTimer(pause)
	defer late.Stop()
	defer early.Stop()
	select {
	case <-late.C:
	case <-l.stop:
	case <-wanted:
		select {
		case <-early.C:
		case <-l.contact:
		case <-l.stop:
		}
	case <-l.contact:
		l.sleep(rand.N(spread), wanted)
	}
}

// sleep ends early when the lane is closed or unless has something.
func (l *Lane) sleep(d time.Duration, unless <-chan struct{}) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-unless:
	case <-l.stop:
	}
}
