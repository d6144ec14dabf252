package netio

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout bounds the time for which written bytes may stay unacknowledged before the kernel gives the connection
// up. Without it, Linux retries for about a quarter of an hour after the peer has vanished.
func SetUserTimeout(c *net.TCPConn, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var opt error
	err = rc.Control(func(fd uintptr) {
		opt = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return opt
}
