//go:build !linux

package netio

import "net"

// Unread reports that there are none: bytes that have not been read are lost with the connection there.
func Unread(net.Conn) bool { return false }

// Left reports that the client has not left: the end of a client's input cannot be seen here.
func Left(net.Conn) bool { return false }
