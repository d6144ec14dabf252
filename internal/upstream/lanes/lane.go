package lanes

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Lane is a shared, ordered connection to Redis. Its sessions' commands are written in the order in which they were
// appended, many at a time, and each reply goes to the session that asked. It reconnects by itself. While it has no
// connection, commands wait, and bring the next attempt forward. After one that fails, their sessions say whether they
// wait on. If Redis refuses the connection, they are reported as unsent.
//
// All methods but Run may be called from any goroutine.
type Lane struct {
	*stream.Stream // moves the bytes; sessions append to it
	dial.Failure   // of the latest attempt to connect

	target dial.Target   // immutable, as the next ones
	set    *set          // of which it is, or was before it was dropped; nil: it refuses everything
	number int           // in the set
	full   bool          // there was no place for it
	mover  stream.Mover  // nil: two goroutines move its bytes
	stop   chan struct{} // closed by Close
	once   sync.Once

	contact chan struct{} // size 1, never closed: Redis has been reached while the lane rested

	unsettled atomic.Bool // see Settle

	old atomic.Bool // see IsBefore72

	// Guarded by Lanes.mu.
	users  int       // sessions
	unused time.Time // since when users is 0
	waits  time.Time // since when commands have been outstanding, or the latest probe; zero: none were at the last look
}

// newLane returns a lane of a set that connects in Run.
func newLane(s *set, number int) *Lane {
	l := &Lane{
		Stream: stream.New(), target: s.key.target, set: s, number: number,
		stop: make(chan struct{}), contact: make(chan struct{}, 1), unused: time.Now(),
	}
	l.OnBusy(s.watch)
	if d := s.key.driver; d != nil {
		l.mover = d.Attach(l.Stream)
		l.OnAppend(l.mover.Wake)
	}
	return l
}

// refusingLane returns a lane that never connects and refuses everything. full: there was no place for one.
func refusingLane(t dial.Target, full bool) *Lane {
	l := &Lane{Stream: stream.New(), target: t, full: full}
	l.Refuse(stream.ErrDown)
	return l
}

// At is the server that the lane leads to.
func (l *Lane) At() topology.Node { return l.target.At }

// Identity of the lane's connection.
func (l *Lane) Identity() dial.Identity { return l.target.ID }

// Full reports whether the lane refuses everything because there was no place for it. The next request for a lane may
// find one.
func (l *Lane) Full() bool { return l.full }

// Hopeless reports whether the lane refuses commands for another reason than that its server is away, so that none of
// them waits for a successor. A lane that is Rejected has no further use: the next request for one asks Redis again.
func (l *Lane) Hopeless() bool { return l.full || l.Failure.Hopeless() }

// Settle says whether a user with nothing outstanding may stay on the lane for the next command.
func (l *Lane) Settle(on bool) { l.unsettled.Store(!on) }

// Unsettled reports whether a user with nothing outstanding on the lane must ask for another one before the next
// command: the lane stands still, or it does not take all commands at present. It costs one load.
func (l *Lane) Unsettled() bool { return l.unsettled.Load() }

// IsBefore72 reports whether the server of the latest connection is Redis before 7.2.
func (l *Lane) IsBefore72() bool { return l.old.Load() }

// isDropped reports whether the lane has left its set: no other session gets it.
func (l *Lane) isDropped() bool { return l.set.lanes[l.number] != l }

// inUse reports whether a session uses the lane.
func (l *Lane) inUse() bool {
	l.set.all.mu.Lock()
	defer l.set.all.mu.Unlock()
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

// Close ends the lane: Run returns, and Append refuses commands.
func (l *Lane) Close() {
	l.once.Do(func() { close(l.stop) })
}

// serve moves the lane's bytes until its connection ends or ctx does, and closes it.
func (l *Lane) serve(ctx context.Context, nc net.Conn) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l.set.all.opts.Dialer.Serve(l.At(), nc, l.Leave, end)
	if l.mover == nil {
		if sc, ok := nc.(syscall.Conn); ok {
			l.WriteDirectly(netio.New(sc))
		}
		defer l.EndDirect()
		return stream.Serve(nc, l.Stream, ctx.Done(), nil)
	}
	return l.mover.Drive(nc, ctx.Done())
}

// Run keeps the lane connected until it is closed.
func (l *Lane) Run() {
	ctx, cancel := dial.UntilClosed(l.stop)
	defer cancel()
	o := &l.set.all.opts
	own := o.Own(l.Identity())
	identity := zap.Stringer("identity", l.Identity())
	log := o.Logger.With(identity)
	var wait, lost dial.Backoff
	reconnected, waited := false, false // waited: commands may have, for this connection
	for !l.closed() {
		nc, err := o.Dialer.Open(ctx, l.target)
		if l.closed() {
			if err == nil {
				o.Dialer.HangUp(nc) // the lane was closed while it connected
			}
			break
		}
		if dial.IsRejected(err) && !own {
			o.Entries.Write(zap.WarnLevel, "upstream refuses the credentials of a client", "", identity, zap.Error(err))
			l.set.reject(l)
			l.Reject()
			l.Refuse(err)
			return
		}
		if err != nil {
			waited = true
			l.Tried(err, own) // before the lane's requests are reported
			l.Rest(err, l.Hopeless())
			delay, pause := wait.Next()
			inUse := l.inUse()
			o.Events.Failed(l.target, err, inUse)
			if inUse {
				log.Debug("lane not connected", zap.Error(err), logging.Seconds("retry_in", delay))
			}
			l.rest(err, delay, pause)
			continue
		}
		if o.Dialer.Connections().Locked(nc) { // it has no credentials, and Redis demands some
			o.Dialer.HangUp(nc)
			l.set.reject(l)
			l.Reject()
			l.Refuse(stream.ErrDown)
			return
		}
		wait = dial.Backoff{}
		since := time.Now()
		l.Tried(nil, own)
		_, old := o.Dialer.Connections().Greeting(nc)
		l.old.Store(old)
		o.Events.Connected(l.target, l.set.owner, reconnected)
		reconnected = true
		log.Debug("lane connected")
		if waited {
			l.awaitLoaded(nc)
		}
		waited = true
		err = l.serve(ctx, nc)
		left := o.Dialer.IsElsewhere(l.At(), nc) // the proxy has ended the connection, because the server has moved
		o.Dialer.Lost(nc)
		o.Dialer.Connections().Closed(nc)
		if l.closed() {
			break
		}
		log.Debug("lane lost its connection", zap.Error(err))
		if !left {
			o.Entries.Write(zap.WarnLevel, "a connection to redis was lost", "", identity, zap.Error(err))
		}
		l.set.all.lost.Add(1)
		o.Events.Lost(l.target)
		l.Reconnect(err)
		if time.Since(since) >= steady {
			lost = dial.Backoff{}
			continue
		}
		_, pause := lost.Next()
		l.sleep(pause, nil)
	}
	l.Refuse(stream.ErrDown)
}

// awaitLoaded holds commands that have waited for Redis back while it loads its data, as client libraries do behind a
// lost connection. It ends when no session waits on: then Redis says itself that it loads.
func (l *Lane) awaitLoaded(nc net.Conn) {
	d := l.set.all.opts.Dialer
	for asked := 1; l.Sift(asked%dial.LoadingRound == 0) && !l.closed() && d.IsLoading(nc); asked++ {
		l.sleep(dial.LoadingPause, nil)
	}
}

// steady is the age from which the loss of a connection is nothing unusual: a Redis that closes single connections is
// reachable, so the next attempt follows at once. A Redis that closes each connection is asked less and less often.
const steady = time.Second

// spread is the time over which lanes without waiting commands come back after an outage.
const spread = 50 * time.Millisecond

// rest waits for the time of the next attempt: after delay; after pause if a command waits for it; or soon after a
// successful contact of another connection.
func (l *Lane) rest(err error, delay, pause time.Duration) {
	unreached := l.set.all.opts.Dialer.Await(l.At(), l.contact, err)
	defer l.set.all.opts.Dialer.Forget(l.At(), l.contact)
	if !unreached {
		l.sleep(pause, nil)
		return
	}
	wanted := l.Wanted()
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
	select {
	case <-time.After(d):
	case <-unless:
	case <-l.stop:
	}
}
