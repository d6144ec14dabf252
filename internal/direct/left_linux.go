package direct

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Left reports whether the client of the socket under nc has ended its side, even if bytes before the end have not been read. It does not block.
func Left(nc net.Conn) bool {
	sc, ok := Socket(nc).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	left := false
	err = raw.Control(func(fd uintptr) { left = LeftFD(int(fd)) })
	return err == nil && left
}

// LeftFD is Left for a file descriptor.
func LeftFD(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents != 0
}
