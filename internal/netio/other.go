//go:build !linux

package netio

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// WriteFD writes to a socket that does not block. It returns the number of bytes that the socket has taken.
func WriteFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }

// Guard exists on Linux only; TCP keepalive is the only guard elsewhere.
type Guard struct{}

// NewGuard returns nil.
func NewGuard(net.Conn, time.Duration, func(time.Duration)) *Guard { return nil }

// Stop does nothing.
func (*Guard) Stop() {}

// Unread reports that there are none: bytes that have not been read are lost with the connection there.
func Unread(net.Conn) bool { return false }

// Left reports that the client has not left: the end of a client's input cannot be seen here.
func Left(net.Conn) bool { return false }

// EndWatch and Reader exist on Linux only.
type (
	EndWatch struct{}
	Reader   struct{}
)

// NewEndWatch returns nil: the end of a client's input cannot be seen here.
func NewEndWatch(net.Conn) *EndWatch { return nil }

// NewReader returns nil: the socket is read as any other connection.
func NewReader(net.Conn, *sync.Pool) *Reader { return nil }

// These methods are never called.

func (*EndWatch) Await() (bool, error)        { return false, nil }
func (*EndWatch) Interrupt()                  {}
func (*EndWatch) Reset() error                { return nil }
func (*Reader) Run(func(b []byte) bool) error { return nil }
