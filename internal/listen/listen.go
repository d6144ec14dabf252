// Package listen opens the sockets that clients and operators connect to. Two processes of one configuration can
// overlap: the next one opens the addresses of a process that yields them because it is about to stop, while that one
// accepts as well. Without that, a second process is refused, as for any address in use. systemd may pass the sockets
// instead.
package listen

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// A Listener is an open socket.
type Listener struct {
	net.Listener
	yield  func() // lets the next process open the address
	remove func() // called when the socket has been closed
	passed bool   // systemd keeps it open

	alive net.KeepAliveConfig // of the connections of a passed socket; others have theirs from the start
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if tc, ok := nc.(*net.TCPConn); ok && l.alive.Enable {
		_ = tc.SetKeepAliveConfig(l.alive) // it fails if the connection has ended, which its first read tells
	}
	return nc, err
}

// Yield lets another process open the same address from now on. This one accepts as before.
func (l *Listener) Yield() { l.yield() }

// Close closes the socket, and removes its file.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.remove()
	return err
}

// Finish lets Accept fail soon. Clients that the system has connected until then are accepted within that time: it
// would reset their connections. Those on a socket that systemd keeps wait for the next process.
func (l *Listener) Finish(within time.Duration) {
	ln, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if l.passed || !ok || ln.SetDeadline(time.Now().Add(within)) != nil {
		_ = l.Close() // it may be closed already
	}
}

// Sockets opens sockets, or finds them among those that systemd has passed. The zero value and nil have none of these.
type Sockets struct {
	passed []net.Listener
}

// NewSockets uses the sockets that have been passed to the process.
func NewSockets(passed []net.Listener) *Sockets { return &Sockets{passed: passed} }

// Left lists the addresses of the passed sockets that have not been asked for.
func (s *Sockets) Left() []string {
	var addrs []string
	if s != nil {
		for _, ln := range s.passed {
			addrs = append(addrs, ln.Addr().String())
		}
	}
	return addrs
}

// take removes and returns the passed socket with an address for which is holds; nil: there is none.
func (s *Sockets) take(is func(net.Addr) bool) *Listener {
	if s == nil {
		return nil
	}
	for i, ln := range s.passed {
		if is(ln.Addr()) {
			s.passed = append(s.passed[:i:i], s.passed[i+1:]...)
			return &Listener{Listener: ln, yield: func() {}, remove: func() {}, passed: true}
		}
	}
	return nil
}

// TCP opens host:port. Of an address of IPv4, such as 0.0.0.0, it is no socket of IPv6. Its connections have that
// keepalive, or Go's default one if it is not enabled.
func (s *Sockets) TCP(addr string, alive net.KeepAliveConfig) (*Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	same := func(other net.Addr) bool {
		o, ok := other.(*net.TCPAddr)
		return ok && o.Port == at.Port && (o.IP.Equal(at.IP) || wildcard(o.IP) && wildcard(at.IP))
	}
	if ln := s.take(same); ln != nil {
		ln.alive = alive
		return ln, nil
	}
	release, err := claim(at)
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if host, _, err := net.SplitHostPort(addr); err == nil && net.ParseIP(host).To4() != nil && !strings.Contains(host, ":") {
		network = "tcp4" // package net would open 0.0.0.0 for both
	}
	ln, err := bindTCP(network, addr, alive, release != nil)
	if release == nil {
		release = func() {}
	}
	if err != nil {
		release()
		return nil, err
	}
	return &Listener{Listener: ln, yield: release, remove: release}, nil
}

func wildcard(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }

// Unix opens a unix socket. The file of a process that has gone or yields is replaced.
func (s *Sockets) Unix(path string) (*Listener, error) {
	same := func(other net.Addr) bool {
		o, ok := other.(*net.UnixAddr)
		return ok && o.Name == path
	}
	if ln := s.take(same); ln != nil {
		return ln, nil
	}
	ln, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(path, "@") { // it has no file
		return &Listener{Listener: ln, yield: func() {}, remove: func() {}}, nil
	}
	ln.SetUnlinkOnClose(false) // the file may be the next process's by then
	f, err := identify(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &Listener{Listener: &unixListener{UnixListener: ln, file: f}, yield: f.mark, remove: func() {}}, nil
}

// inUse is the error of the system for an address that another process has.
func inUse(at net.Addr) error {
	return &net.OpError{Op: "listen", Net: at.Network(), Addr: at, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
}
