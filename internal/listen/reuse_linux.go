package listen

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindTCP opens a port. reuse: other processes of the same user may open it as well.
func bindTCP(network, addr string, alive net.KeepAliveConfig, reuse bool) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive}
	if reuse {
		lc.Control = func(_, _ string, c syscall.RawConn) error {
			var opt error
			err := c.Control(func(fd uintptr) { opt = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
			return errors.Join(err, opt)
		}
	}
	return lc.Listen(context.Background(), network, addr)
}

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
