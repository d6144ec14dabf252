package netio

import (
	"net"

	"golang.org/x/sys/unix"
)

// Unread reports whether the socket under nc has bytes that have not been read. It does not block.
func Unread(nc net.Conn) bool { return holds(nc, UnreadFD) }

// UnreadFD is Unread for a file descriptor.
func UnreadFD(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && n > 0
}

// Left reports whether the client of the socket under nc has ended its side, even if bytes before the end have not been
// read. It does not block.
func Left(nc net.Conn) bool { return holds(nc, LeftFD) }

// LeftFD is Left for a file descriptor.
func LeftFD(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents != 0
}

// holds reports whether a condition holds for the file descriptor of the socket under nc; false if there is none.
func holds(nc net.Conn, of func(fd int) bool) (is bool) {
	onSocket(nc, func(fd int) { is = of(fd) })
	return is
}
