//go:build !linux

package listen

import "net"

// bindTCP opens a port for this process alone.
func bindTCP(addr string, _ bool) (net.Listener, error) { return net.Listen("tcp", addr) }

// claim is not needed.
func claim(*net.TCPAddr) (release func(), err error) { return nil, nil }
