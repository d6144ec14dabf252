//go:build !linux

package listen

import (
	"context"
	"net"
)

// bindTCP opens a port for this process alone.
func bindTCP(network, addr string, alive net.KeepAliveConfig, _ bool) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive}
	return lc.Listen(context.Background(), network, addr)
}

// claim is not needed.
func claim(*net.TCPAddr) (release func(), err error) { return nil, nil }
