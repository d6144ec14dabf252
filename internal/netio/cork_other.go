//go:build !linux

package netio

import "net"

// Cork does nothing where the kernel has no such option.
func Cork(net.Conn) {}
