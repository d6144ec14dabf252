package proxy

import (
	"net"
	"syscall"
	"time"
)

// origin is where a client comes from. It is set before others see the client.
type origin struct {
	id          uint64 // of CLIENT ID
	addr, laddr string // as far as they are known
	unix        bool
	fd          int // 0: it is not known
	since       time.Time
}

// originOf describes a connection that has been accepted.
func originOf(nc net.Conn, id uint64) origin {
	o := origin{id: id, addr: nc.RemoteAddr().String(), laddr: nc.LocalAddr().String(), since: time.Now()}
	if _, ok := nc.(*net.UnixConn); ok {
		// Nobody but the server has a name there. Redis says it this way.
		o.laddr += ":0"
		o.addr, o.unix = o.laddr, true
	}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { o.fd = int(fd) }) // it fails if the connection is closed, and then nobody asks
		}
	}
	return o
}
