package clients

import (
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Origin is where a client comes from. It is set before others see the client.
type Origin struct {
	ID          uint64 // of CLIENT ID
	Addr, LAddr string // as far as they are known
	unix        bool
	FD          int // 0: it is not known
	Since       time.Time
}

// OriginOf describes a connection that has been accepted.
func OriginOf(nc net.Conn, id uint64) Origin {
	o := Origin{ID: id, Addr: nc.RemoteAddr().String(), LAddr: nc.LocalAddr().String(), Since: time.Now()}
	if _, ok := nc.(*net.UnixConn); ok {
		// Only the server has a name there. Redis shows it this way.
		o.LAddr += ":0"
		o.Addr, o.unix = o.LAddr, true
	}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { o.FD = int(fd) }) // it fails for a closed connection, which needs no number
		}
	}
	return o
}

// DescribeTo fills in the facts that are known from the start.
func (o *Origin) DescribeTo(c *Info) {
	c.ID, c.Addr, c.LAddr, c.Unix, c.FD = o.ID, o.Addr, o.LAddr, o.unix, o.FD
	c.Age = int64(time.Since(o.Since) / time.Second)
}

// Visible is a connected client as other clients see it. Its methods may be called from any goroutine that holds no
// session's lock.
type Visible interface {
	// Describe returns the facts for CLIENT LIST. false: the client has gone.
	Describe() (Info, bool)

	// KillIf ends the client if match is true for it.
	KillIf(match func(*Info) bool)
}

// Conn is a connection to Redis that a client has for itself.
type Conn struct {
	At topology.Node
	ID uint64 // at that server; 0: there is no connection, or Redis has not told its number
}

// UserOf is the name of the user that a connection has, whether or not it has authenticated.
func UserOf(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

// Account is the account of a client's connections to Redis: its address, or for IPv6 the network of one subscriber.
func Account(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr // a unix socket
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.Prefix(64) // an IPv6 address has more bits than that
	return prefix.String()
}
