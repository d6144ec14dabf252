package engine

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// eventLoop is the engine for plain sockets on Linux: one goroutine that waits on epoll, and moves the bytes of its
// clients and of its own lanes. There is no goroutine and no buffer per client. One round is
//
//	wait ─▶ read every ready client into its session and every ready lane into its receivers
//	     ─▶ write each lane that got requests, once
//	     ─▶ write each client that got replies, once
//
// so that the more clients are ready together, the fewer system calls each costs.
type eventLoop struct {
	opts Options
	epfd int
	evfd int // written to by other goroutines to end a wait
	done chan struct{}

	// Owned by run.
	sockets []socket // by file descriptor; nil: none
	buf     []byte   // the bytes of one read
	events  []unix.EpollEvent

	meter  Meter
	yields atomic.Bool // run is to let other goroutines run before its next round

	mu     sync.Mutex
	asleep bool           // run waits, or is about to
	dirty  []*epollClient // clients that have something for run to do
	rung   []*epollLane   // lanes that have requests to write
	jobs   []func()
	closed bool // run has ended: nothing is taken any more
}

// socket is a client or a lane as epoll knows it.
type socket interface {
	// ready handles events on run's goroutine.
	ready(events uint32)

	// quiet is the silence of the peer, and vanished closes the connection because of it, on run's goroutine.
	quiet() *netio.Silence
	vanished(silent time.Duration)
}

// loopReadSize is the largest number of bytes of one read. All sockets of a loop share the buffer.
const loopReadSize = 256 << 10

// eventsPerWait bounds one round, so that Redis and the clients of this round work while the next one is read. Side by
// side on two cores, medians of eight rounds, 32 gave 13 % more GET/s than 512 with 50 clients at depth 16, 3 % with
// 500 clients, and the same at depth 1; 8 gave a fifth less at depth 1.
const eventsPerWait = 32

// newEventLoops makes one loop for two processors: the other processor is Redis's, or another proxy's, or the lock
// engine's.
func newEventLoops(opts Options) ([]*eventLoop, error) {
	loops := make([]*eventLoop, max(1, runtime.GOMAXPROCS(0)/2))
	for i := range loops {
		var err error
		if loops[i], err = newEventLoop(opts); err != nil {
			return nil, err
		}
	}
	return loops, nil
}

func newEventLoop(opts Options) (*eventLoop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	evfd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), unix.Close(epfd))
	}
	l := &eventLoop{
		opts: opts, epfd: epfd, evfd: evfd, done: make(chan struct{}),
		buf: make([]byte, loopReadSize), events: make([]unix.EpollEvent, eventsPerWait),
	}
	if err := l.watch(evfd, unix.EPOLLIN, unix.EPOLL_CTL_ADD); err != nil {
		return nil, errors.Join(err, unix.Close(evfd), unix.Close(epfd))
	}
	return l, nil
}

// run moves bytes until stop has been called and everything is closed.
func (l *eventLoop) run() {
	defer close(l.done)
	l.lookLater()
	for {
		timeout := 0
		if l.mayWait() {
			timeout = -1
		}
		n, err := unix.EpollWait(l.epfd, l.events, timeout)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic("BUG: epoll_wait: " + err.Error())
		}
		l.meter.Begin()
		l.wake()
		for _, ev := range l.events[:max(n, 0)] {
			if fd := int(ev.Fd); fd == l.evfd {
				l.drainEvent()
			} else if fd < len(l.sockets) && l.sockets[fd] != nil {
				l.sockets[fd].ready(ev.Events)
			}
		}
		if !l.settle() {
			return
		}
		l.meter.End()
		l.yield()
	}
}

// yield lets the goroutines run that the round has started, if a client waits for one of them.
//
// The last goroutine that a goroutine has started is the next one on its processor. Another thread leaves it there for
// some 50 µs, a sleep of the runtime, because the goroutine that runs there may be about to wait. The loop's calls on
// sockets are not told to the runtime (package netio), so the loop never seems to wait until it does. With the yield a
// hand-over between two clients takes a tenth less processor time (bench/README.md has the command).
func (l *eventLoop) yield() {
	if l.yields.Load() {
		l.yields.Store(false)
		runtime.Gosched()
	}
}

// mayWait reports whether nothing is left to do. From then on other goroutines end the wait when they add work.
func (l *eventLoop) mayWait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asleep = len(l.dirty)+len(l.rung)+len(l.jobs) == 0
	return l.asleep
}

func (l *eventLoop) wake() {
	l.mu.Lock()
	l.asleep = false
	l.mu.Unlock()
}

// settle does the work of a round: jobs, then lanes, so that requests are on their way while clients are written.
// false: the loop has been stopped.
func (l *eventLoop) settle() bool {
	l.mu.Lock()
	jobs, rung, dirty := l.jobs, l.rung, l.dirty
	l.jobs, l.rung, l.dirty = nil, nil, nil
	l.mu.Unlock()
	for _, job := range jobs {
		job()
	}
	for _, lane := range rung {
		lane.write()
	}
	for _, client := range dirty {
		client.settle()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rung == nil {
		clear(rung)
		l.rung = rung[:0]
	}
	if l.dirty == nil {
		clear(dirty)
		l.dirty = dirty[:0]
	}
	return !l.closed
}

// lookLater has the sockets looked at when it is time to.
func (l *eventLoop) lookLater() {
	if l.opts.Silence > 0 {
		time.AfterFunc(netio.LookEvery(l.opts.Silence), func() { l.post(func() { l.look(0) }) })
	}
}

// looksPerRound bounds the time for which looks at sockets hold up their bytes: most looks take 0.2 µs, and those at
// sockets with outstanding bytes 1 µs.
const looksPerRound = 128

// look closes the connections whose peers have vanished, among those from a file descriptor on.
func (l *eventLoop) look(from int) {
	now := time.Now()
	to := min(from+looksPerRound, len(l.sockets))
	for fd := from; fd < to; fd++ {
		s := l.sockets[fd]
		if s == nil {
			continue
		}
		if silent := s.quiet().Of(fd, now); silent >= l.opts.Silence {
			s.vanished(silent)
		}
	}
	if to == len(l.sockets) || !l.post(func() { l.look(to) }) {
		l.lookLater()
	}
}

// post runs job on run's goroutine. false: the loop has ended and job will not run.
func (l *eventLoop) post(job func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.jobs = append(l.jobs, job)
	l.interruptLocked()
	return true
}

// interruptLocked ends a wait.
func (l *eventLoop) interruptLocked() {
	if !l.asleep {
		return
	}
	l.asleep = false
	one := [8]byte{1}
	_, _ = unix.Write(l.evfd, one[:]) // it can only fail if it is already readable
}

func (l *eventLoop) drainEvent() {
	var b [8]byte
	_, _ = unix.Read(l.evfd, b[:]) // reading resets it
}

// stop ends run. Clients and lanes have been closed.
func (l *eventLoop) stop() {
	l.post(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
	})
	<-l.done
	l.discard()
}

// discard gives up a loop that does not run.
func (l *eventLoop) discard() {
	_ = unix.Close(l.evfd)
	_ = unix.Close(l.epfd)
}

// watch tells epoll which events of fd matter.
func (l *eventLoop) watch(fd int, events uint32, op int) error {
	err := unix.EpollCtl(l.epfd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// enter makes the loop handle fd's events.
func (l *eventLoop) enter(fd int, s socket, events uint32) error {
	if err := l.watch(fd, events, unix.EPOLL_CTL_ADD); err != nil {
		return err
	}
	for fd >= len(l.sockets) {
		l.sockets = append(l.sockets, nil)
	}
	l.sockets[fd] = s
	return nil
}

// leave forgets fd, which may not have entered, and closes it. A socket that gets the same number enters in settle,
// when no event of this round is left that could be taken for one of its own.
func (l *eventLoop) leave(fd int) {
	if fd < len(l.sockets) {
		l.sockets[fd] = nil
	}
	_ = unix.Close(fd) // this also takes it out of epoll
}

// takeover returns a file descriptor of its own for a connection, which it closes.
func takeover(nc net.Conn) (int, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return -1, errors.New("not a plain socket")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	if dupErr != nil {
		return -1, fmt.Errorf("dup: %w", dupErr)
	}
	if err := nc.Close(); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil // it shares the mode of Go's, which does not block
}

// again reports whether a system call should be tried later.
func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// adopt takes over a client.
func (l *eventLoop) adopt(a Arrival) error {
	fd, err := takeover(a.Conn)
	if err != nil {
		return err
	}
	c := &epollClient{loop: l, fd: fd, addr: a.Addr, closed: a.Closed, queued: true} // begin settles it for the first time
	c.sess = a.Open(c, fd)
	if err := a.Opened(c); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if !l.post(func() { c.begin(a.Read) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	return nil
}

// Attach implements upstream.Driver.
func (l *eventLoop) Attach(w *upstream.Stream) upstream.Mover {
	return &epollLane{loop: l, wire: w, fd: -1}
}

var _ upstream.Driver = (*eventLoop)(nil)

// busy is about how long the loop has been busy.
func (l *eventLoop) busy() time.Duration { return l.meter.Time() }
