// Package direct adds operations on sockets to those of package net: it writes the bytes that a socket takes at once and returns their number,
// reads a socket whenever that has bytes, sees the end of a client's input before the bytes in front of it have been read, and tells whether bytes have
// not been read.
package direct

import "net"

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
