package netio

import "golang.org/x/sys/unix"

// CorkFD keeps the last written bytes back until the socket is shut down for writing, for 200 ms at most, so that they
// and the end of the connection travel in one segment. Else a client that has them may send its next command before it
// can know of the end. A socket that is closed without a shutdown loses the bytes if there is input that has not been
// read. CorkFD does nothing for other sockets than TCP's.
func CorkFD(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, 1) } // it fails for other sockets
