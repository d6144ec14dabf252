//go:build !linux

package proxy

import "net"

// endWatch exists on Linux only.
type endWatch struct{}

func newEndWatch(net.Conn) *endWatch   { return nil }
func (*endWatch) await() (bool, error) { return false, nil }
func (*endWatch) interrupt()           {}
func (*endWatch) reset() error         { return nil }
