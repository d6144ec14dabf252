package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Workload decides what connections send. It is called by the Loop's goroutine only.
type Workload interface {
	// Start is called once for each connection, before it is established.
	Start(c *Conn)
	// Reply is called for each reply, in order.
	Reply(c *Conn, r Reply)
}

// Reply is one reply.
type Reply struct {
	Tag  int    // as given to Send
	Sent int64  // as given to Send
	Head []byte // first line without line end, valid during the call; nil if it is long gone, as for bulk strings of many reads
}

// Loop drives connections.
type Loop struct {
	// ErrorsAllowed makes error replies ordinary ones. Else the first ends Run.
	ErrorsAllowed bool

	epoll, timer int
	buf          []byte
	conns        []*Conn
	byFD         map[int32]*Conn
	dirty        []*Conn
	now          int64
	err          error

	pace func(due int64)
	step float64 // ns between two commands
	due  float64 // ns on the loop's clock
}

// start is the origin of the loops' clock, which is monotonic.
var start = time.Now()

func clock() int64 { return int64(time.Since(start)) }

// NewLoop makes a Loop without connections.
func NewLoop() (*Loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &Loop{epoll: epoll, timer: -1, buf: make([]byte, 256<<10), byFD: map[int32]*Conn{}, now: clock()}, nil
}

// Close closes all connections.
func (l *Loop) Close() {
	for _, c := range l.conns {
		_ = unix.Close(c.fd)
	}
	if l.timer >= 0 {
		_ = unix.Close(l.timer)
	}
	_ = unix.Close(l.epoll)
	l.conns = nil
}

// Now is the time of the event being handled, in ns on the clock of all loops.
func (l *Loop) Now() int64 { return l.now }

// Conns are the loop's connections.
func (l *Loop) Conns() []*Conn { return l.conns }

// Fail ends Run with err.
func (l *Loop) Fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Dial begins n connections to addr and starts w on each. They are established while Run runs.
func (l *Loop) Dial(addr string, n int, w Workload) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	peer := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("connection %d: socket: %w", len(l.conns), err)
		}
		c := &Conn{ID: len(l.conns), fd: fd, loop: l, w: w, writable: true}
		l.conns = append(l.conns, c)
		l.byFD[int32(fd)] = c
		l.now = clock()
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("connection %d: %w", c.ID, err)
		}
		if err := unix.Connect(fd, peer); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connection %d to %s: %w", c.ID, addr, err)
		}
		if err := l.watch(unix.EPOLL_CTL_ADD, c); err != nil {
			return err
		}
		w.Start(c)
	}
	return nil
}

func (l *Loop) watch(op int, c *Conn) error {
	event := unix.EpollEvent{Fd: int32(c.fd), Events: unix.EPOLLIN}
	if c.writable {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(l.epoll, op, c.fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Pace calls f at a constant rate per second from now on, with the time at which each call was due. Calls that could
// not be made in time are made up for, so that the rate holds.
func (l *Loop) Pace(rate float64, f func(due int64)) error {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	l.timer = timer
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Fd: int32(timer), Events: unix.EPOLLIN}); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	l.pace, l.step = f, float64(time.Second)/rate
	l.now = clock()
	l.due = float64(l.now) + l.step
	return l.armTimer()
}

func (l *Loop) armTimer() error {
	wait := max(1, int64(l.due)-clock()) // 0 would switch the timer off
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(wait)}
	if err := unix.TimerfdSettime(l.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	return nil
}

func (l *Loop) paced() error {
	for int64(l.due) <= l.now && l.err == nil {
		l.pace(int64(l.due))
		l.due += l.step
	}
	return l.armTimer()
}

// Run drives the connections for d, or until done (which may be nil) returns true. It returns the first failure of any
// of them.
func (l *Loop) Run(ctx context.Context, d time.Duration, done func() bool) error {
	const tick = 20 // ms; how late Run may notice its end when nothing happens
	events := make([]unix.EpollEvent, 512)
	l.now = clock()
	end := l.now + int64(d)
	for l.now < end && l.err == nil && ctx.Err() == nil && (done == nil || !done()) {
		if err := l.flush(); err != nil {
			return err
		}
		n, err := unix.EpollWait(l.epoll, events, tick)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		l.now = clock()
		for i := range max(n, 0) {
			if err := l.handle(events[i]); err != nil {
				return err
			}
		}
	}
	if l.err != nil {
		return l.err
	}
	return ctx.Err()
}

func (l *Loop) handle(event unix.EpollEvent) error {
	if int(event.Fd) == l.timer {
		return l.paced()
	}
	c := l.byFD[event.Fd]
	if event.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		l.now = clock()
		if err := c.read(l.buf); err != nil {
			return fmt.Errorf("connection %d: %w", c.ID, err)
		}
	}
	if c.dirty || event.Events&unix.EPOLLOUT != 0 {
		return c.flush()
	}
	return nil
}

func (l *Loop) flush() error {
	for _, c := range l.dirty {
		if c.dirty {
			if err := c.flush(); err != nil {
				return fmt.Errorf("connection %d: %w", c.ID, err)
			}
		}
	}
	l.dirty = l.dirty[:0]
	return nil
}
