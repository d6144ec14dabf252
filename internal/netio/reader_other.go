//go:build !linux

package netio

import (
	"net"
	"sync"
)

// Reader exists on Linux only, as the reads that it makes.
type Reader struct{}

// NewReader returns nil: the socket is read as any other connection.
func NewReader(net.Conn, *sync.Pool) *Reader { return nil }

// Run is never called.
func (*Reader) Run(func(b []byte) bool) error { return nil }

// Shut is never called.
func (*Reader) Shut() {}
