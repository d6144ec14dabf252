//go:build !linux

package upstream

import (
	"net"
	"time"
)

// setUserTimeout does nothing where the kernel has no such option; TCP keepalive is the only guard there.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
