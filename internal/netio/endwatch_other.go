//go:build !linux

package netio

import "net"

// EndWatch exists on Linux only.
type EndWatch struct{}

// NewEndWatch returns nil: the end of a client's input cannot be seen here.
func NewEndWatch(net.Conn) *EndWatch { return nil }

// Await is never called.
func (*EndWatch) Await() (bool, error) { return false, nil }

// Interrupt is never called.
func (*EndWatch) Interrupt() {}

// Reset is never called.
func (*EndWatch) Reset() error { return nil }
