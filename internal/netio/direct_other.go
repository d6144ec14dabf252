//go:build !unix

package netio

import "syscall"

// Writer needs sockets that can be written without waiting.
type Writer struct{}

// New returns nil: sockets are not written so here.
func New(syscall.Conn) *Writer { return nil }

// Write is never called.
func (*Writer) Write([]byte) (int, error) { return 0, nil }
