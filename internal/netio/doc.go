// Package netio adds operations on sockets to those of package net: it writes the bytes that a socket takes at once and
// returns their number, reads a socket whenever that has bytes, sees the end of a client's input before the bytes in
// front of it have been read, and tells whether bytes have not been read.
package netio

import (
	"net"
	"sync"
	"syscall"
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

// Space returns buffers of a size for Readers to share.
func Space(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}
}
