//go:build !linux

package direct

import "net"

// Cork does nothing where the kernel has no such option.
func Cork(net.Conn) {}
