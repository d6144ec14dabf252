package dial

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file knows which of Redis's clients are this proxy's own connections.

// Connections tells this proxy's connections to Redis from other connections: by the id that Redis gave each, and by the address as
// long as the id is not known. All methods may be called from any goroutine.
type Connections struct {
	mu     sync.Mutex
	open   map[net.Conn]connected
	ids    map[uint64]time.Time // when it was closed; zero: it is open
	locals map[string]int       // local addresses of open connections without a known id
	left   map[string]time.Time // when such a connection was closed, by its address
	count  int                  // open, and past the handshake

	opening map[chan struct{}]struct{} // attempts to open one; each is closed when it is over
}

// connected is one open connection.
type connected struct {
	id    uint64 // 0: not known
	local string
	at    string // the address that was dialled
	lent  bool
	ready bool // the handshake is over
	old   bool // see IsBefore72
}

// ClosedFor is the time for which a closed connection is remembered, because Redis may not have noticed its end yet.
const ClosedFor = 5 * time.Second

// leftFor is the same for a connection without a known id: its address may soon be another client's.
const leftFor = time.Second

// Own reports whether Redis's client with this id and address is a connection of this proxy.
func (c *Connections) Own(id uint64, addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	closed, known := c.ids[id]
	if known && (closed.IsZero() || time.Since(closed) < ClosedFor) || c.locals[addr] > 0 {
		return true
	}
	left, known := c.left[addr]
	return known && time.Since(left) < leftFor
}

// Any is the id of an open connection; 0: none is known.
func (c *Connections) Any() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, closed := range c.ids {
		if closed.IsZero() {
			return id
		}
	}
	return 0
}

// Count is the number of open connections past their handshake, which Redis counts.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Settle waits, for a bounded time, until the present attempts to open a connection are over. Redis may know such a connection before
// the proxy does.
func (c *Connections) Settle() {
	c.mu.Lock()
	var all []chan struct{}
	for over := range c.opening {
		all = append(all, over)
	}
	c.mu.Unlock()
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for _, over := range all {
		select {
		case <-over:
		case <-limit.C:
			return
		}
	}
}

// settleLimit bounds Settle. A longer attempt is one that Redis does not answer, and so does not know.
const settleLimit = 200 * time.Millisecond

// Attempt says that a connection is being opened, until over is called.
func (c *Connections) Attempt() (over func()) {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == nil {
		c.opening = map[chan struct{}]struct{}{}
	}
	c.opening[done] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.opening, done)
		close(done)
	}
}

// Opened notes a connection to an address that is before its handshake.
func (c *Connections) Opened(nc net.Conn, at string) {
	local := ""                                     // Redis shows no address
	if a, ok := nc.LocalAddr().(*net.TCPAddr); ok { // all unix sockets have the same address
		local = a.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.ids, c.locals = map[net.Conn]connected{}, map[uint64]time.Time{}, map[string]int{}
		c.left = map[string]time.Time{}
	}
	c.open[nc] = connected{local: local, at: at}
	c.locals[local]++
}

// Replaced says that a connection continues under another type, TLS on it.
func (c *Connections) Replaced(old, nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[nc] = c.open[old]
	delete(c.open, old)
}

// Identified says that a connection is past its handshake, and the id that Redis gave it; 0: it is not known.
func (c *Connections) Identified(nc net.Conn, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.open[nc]
	if !ok || known.id != 0 {
		return
	}
	if !known.ready {
		c.count++
	}
	known.ready, known.id = true, id
	if id != 0 {
		c.forgetLocalLocked(known.local)
		c.ids[id] = time.Time{}
	}
	c.open[nc] = known
}

// Greeted is Identified with the answer to HELLO.
func (c *Connections) Greeted(nc net.Conn, hello resp.Value) {
	c.Identified(nc, ConnectionID(hello))
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.open[nc]; ok {
		known.old = IsBefore72(hello)
		c.open[nc] = known
	}
}

// Greeting is what a connection's answer to HELLO said: its id, 0 if it is not known, and IsBefore72.
func (c *Connections) Greeting(nc net.Conn) (id uint64, old bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[nc]
	return known.id, known.old
}

// Closed forgets a connection, now or when it may be called again.
func (c *Connections) Closed(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.open[nc]
	if !ok {
		return
	}
	delete(c.open, nc)
	if known.ready {
		c.count--
	}
	if known.id == 0 {
		c.forgetLocalLocked(known.local)
		if known.local != "" {
			c.left[known.local] = time.Now()
		}
		return
	}
	c.ids[known.id] = time.Now()
}

func (c *Connections) forgetLocalLocked(local string) {
	if c.locals[local]--; c.locals[local] <= 0 {
		delete(c.locals, local)
	}
}

// Elsewhere returns the open connections that were dialled at another address, or only the lent ones among them.
func (c *Connections) Elsewhere(than string, lentOnly bool) []net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []net.Conn
	for nc, known := range c.open {
		if known.at != than && (known.lent || !lentOnly) {
			all = append(all, nc)
		}
	}
	return all
}

// At is the address at which an open connection was dialled; "" if it is not open.
func (c *Connections) At(nc net.Conn) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[nc].at
}

// Trim forgets what was closed before t.
func (c *Connections) Trim(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range c.ids {
		if !at.IsZero() && at.Before(t) {
			delete(c.ids, id)
		}
	}
	for addr, at := range c.left {
		if at.Before(t) {
			delete(c.left, addr)
		}
	}
}

// ConnectionID is the id in the answer to HELLO; 0: there is none.
func ConnectionID(hello resp.Value) uint64 { return uint64(max(field(hello, "id").Int, 0)) }

// ReplicaRole is the role of a replica in the answer to HELLO.
const ReplicaRole = "replica"

// PrimaryRole is the role of a primary there.
const PrimaryRole = "master"

// RoleIn is the role of the server in the answer to HELLO; "": a connection without credentials is not told.
func RoleIn(hello resp.Value) string { return string(field(hello, "role").Str) }

// IsBefore72 reports whether the answer to HELLO is that of a Redis before version 7.2.
func IsBefore72(hello resp.Value) bool {
	version := strings.SplitN(string(field(hello, "version").Str), ".", 3)
	if string(field(hello, "server").Str) != "redis" || len(version) < 2 {
		return false
	}
	major, err := strconv.Atoi(version[0])
	minor, _ := strconv.Atoi(version[1])
	return err == nil && (major < 7 || major == 7 && minor < 2)
}

// field is the value of a field in the answer to HELLO, which is a map or a flat array.
func field(hello resp.Value, name string) resp.Value {
	for i := 0; i+1 < len(hello.Elems); i += 2 {
		if string(hello.Elems[i].Str) == name {
			return hello.Elems[i+1]
		}
	}
	return resp.Value{}
}
