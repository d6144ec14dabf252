//go:build !linux

package netio

import "golang.org/x/sys/unix"

// WriteFD writes to a socket that does not block. It returns the number of bytes that the socket has taken.
func WriteFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
