// Package netio adds operations on sockets to those of package net: it writes the bytes that a socket takes at once and
// returns their number, reads a socket whenever that has bytes, sees the end of a client's input before the bytes in
// front of it have been read, tells whether bytes have not been read, ends one direction of a connection at once, and
// ends a connection whose peer has vanished.
package netio

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is the socket under nc, or nc itself: under TLS, for example.
func Socket(nc net.Conn) net.Conn {
	for {
		under, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = under.NetConn()
	}
}

// rawConn gives access to the file descriptor of a socket; nil: nc is none.
func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// onSocket calls f with the file descriptor of the socket under nc, if there is one.
func onSocket(nc net.Conn, f func(fd int)) {
	if raw := rawConn(Socket(nc)); raw != nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // it fails if the socket is closed
	}
}

// ShutWrite ends the direction away from us of the socket under nc, behind the bytes that the socket has. It does not
// block, and may be called while other goroutines read, write or close nc.
func ShutWrite(nc net.Conn) {
	onSocket(nc, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // it fails if the other side has ended both
}

// Space returns buffers of a size for Readers to share.
func Space(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}
}
