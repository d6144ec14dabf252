//go:build !linux

package netio

import (
	"net"
	"time"
)

// SetUserTimeout does nothing where the kernel has no such option; TCP keepalive is the only guard there.
func SetUserTimeout(*net.TCPConn, time.Duration) error { return nil }
