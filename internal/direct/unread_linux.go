package direct

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unread reports whether the socket under nc has bytes that have not been read. It does not block.
func Unread(nc net.Conn) bool {
	sc, ok := Socket(nc).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) // 0 if it fails
	})
	return err == nil && n > 0
}
