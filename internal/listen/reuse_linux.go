package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bindTCP opens a port. reuse: other processes of the same user may open it as well. Linux gives the listener's
// keepalive to its connections. Go would set it with four system calls for each.
func bindTCP(network, addr string, alive net.KeepAliveConfig, reuse bool) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive}
	if alive.Enable {
		lc.KeepAliveConfig, lc.KeepAlive = net.KeepAliveConfig{}, -1
	}
	lc.Control = func(_, _ string, c syscall.RawConn) error {
		var opts error
		err := c.Control(func(fd uintptr) { opts = prepare(int(fd), alive, reuse) })
		return errors.Join(err, opts)
	}
	return lc.Listen(context.Background(), network, addr)
}

// prepare sets the options of a socket that is going to listen.
func prepare(fd int, alive net.KeepAliveConfig, reuse bool) error {
	var errs []error
	set := func(level, opt, value int) {
		if value > 0 { // else the system decides
			errs = append(errs, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, value)))
		}
	}
	if reuse {
		set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if alive.Enable {
		set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		set(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(alive.Idle))
		set(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(alive.Interval))
		set(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, alive.Count)
	}
	return errors.Join(errs...)
}

// seconds rounds up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// claim keeps other processes of this program from opening a port, although SO_REUSEPORT would let them, until release
// is called. The claim is a name that one process can have: the system frees it when the process ends. nil: there is no
// claim, because the port is not known yet, or unix sockets are not allowed here.
func claim(at *net.TCPAddr) (release func(), err error) {
	if at.Port == 0 {
		return nil, nil
	}
	host := "*"
	if !wildcard(at.IP) {
		host = at.IP.String()
	}
	name := "@lockproxy/listen/" + net.JoinHostPort(host, strconv.Itoa(at.Port))
	ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, inUse(at)
	case err != nil:
		return nil, nil //nolint:nilerr // the port is opened for this process alone then
	}
	return sync.OnceFunc(func() { _ = ln.Close() }), nil
}
