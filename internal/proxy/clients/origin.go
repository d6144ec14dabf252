package clients

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strconv"
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

// Redirection is the target of CLIENT TRACKING's invalidations: the client with that id, whose connection at Redis is
// conn. The zero value: none, or a client of Redis itself.
type Redirection struct{ Client, Conn uint64 }

// Translate puts the client's id into a reply or push that ends with that of its connection.
func (r Redirection) Translate(reply []byte) []byte {
	if r.Conn == 0 {
		return reply
	}
	old := strconv.AppendUint([]byte(":"), r.Conn, 10)
	for _, prefix := range redirPrefixes {
		at := bytes.Index(reply, slices.Concat([]byte(prefix), old, []byte("\r\n")))
		if at < 0 || prefix == "" && at > 0 {
			continue
		}
		at += len(prefix) + 1
		return slices.Concat(reply[:at], strconv.AppendUint(nil, r.Client, 10), reply[at+len(old)-1:])
	}
	return reply
}

// redirPrefixes stand before the id in the replies to CLIENT GETREDIR and TRACKINGINFO, and in the push that says that
// the client has gone.
var redirPrefixes = []string{"", "$8\r\nredirect\r\n", "$21\r\ntracking-redir-broken\r\n"}
