package netio

import (
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Silence is the time for which the peer of one TCP connection has acknowledged nothing although that was due. The
// zero value is ready. The kernel's own limit (TCP_USER_TIMEOUT) also ends connections whose peer acknowledges all it
// gets, and has no room: a client that does not read, a Redis that runs a long command. Here only a peer that has
// vanished counts. One without outstanding bytes is found by TCP keepalive.
type Silence struct {
	since time.Time // an answer was due then, and none has come since; zero: none is due
}

// Of looks at the connection, and returns how long the silence has lasted. Its looks are the measure: a silence
// between two of them is not seen.
func (s *Silence) Of(fd int, now time.Time) time.Duration {
	queued, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ) // cheap: most connections have nothing
	if err != nil || queued == 0 {
		s.since = time.Time{}
		return 0
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO) // it fails for other sockets
	if err != nil || !outstanding(info) {
		s.since = time.Time{}
		return 0
	}
	heard := now.Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
	if s.since.IsZero() || heard.After(s.since) {
		s.since = now
	}
	return now.Sub(s.since)
}

// outstanding reports whether an answer of the peer is due: to bytes that were sent since its last one, or to probes
// for room. Bytes for which it had no room are sent again later and later, and it answers each time.
func outstanding(info *unix.TCPInfo) bool {
	return info.Probes > 0 || info.Unacked > 0 && info.Last_data_sent < info.Last_ack_recv
}

// looks is the number of looks at a connection within the longest silence that is allowed.
const looks = 4

// LookEvery is the time between two looks at a connection whose silence may last for limit.
func LookEvery(limit time.Duration) time.Duration { return limit / looks }

// A Guard breaks a connection whose peer has vanished.
type Guard struct {
	raw     syscall.RawConn
	limit   time.Duration
	broken  func(silent time.Duration)
	silence Silence
	timer   *time.Timer
}

// NewGuard guards the socket under nc until Stop, or until it is closed. The peer may be silent for limit. broken is
// told the silence for which the connection was broken, by a goroutine of its own. It returns nil if there is nothing
// to guard: limit is 0, or nc is not TCP.
func NewGuard(nc net.Conn, limit time.Duration, broken func(silent time.Duration)) *Guard {
	tc, ok := Socket(nc).(*net.TCPConn)
	if !ok || limit <= 0 {
		return nil
	}
	g := &Guard{raw: rawConn(tc), limit: limit, broken: broken}
	g.timer = time.AfterFunc(time.Hour, g.look)
	g.timer.Reset(LookEvery(limit))
	return g
}

// look runs on the timer's goroutine.
func (g *Guard) look() {
	var silent time.Duration
	err := g.raw.Control(func(fd uintptr) {
		if silent = g.silence.Of(int(fd), time.Now()); silent >= g.limit {
			breakFD(int(fd))
		}
	})
	switch {
	case err != nil: // it is closed
	case silent >= g.limit:
		g.broken(silent)
	default:
		g.timer.Reset(LookEvery(g.limit))
	}
}

// breakFD ends a TCP connection for all goroutines that use it: they find it reset. The kernel drops what it has not
// delivered.
func breakFD(fd int) {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC} // connect(2): it dissolves the connection
	_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)),
		unsafe.Sizeof(unspecified))
}

// Stop ends the guard. A look that has begun may go on.
func (g *Guard) Stop() {
	if g != nil {
		g.timer.Stop()
	}
}
