package dial

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Connections are the open connections to Redis, and what is known of each. All methods may be called from any
// goroutine.
type Connections struct {
	mu   sync.Mutex
	open map[net.Conn]connected
}

// connected is one open connection.
type connected struct {
	id     uint64 // 0: not known
	at     string // the address that was dialled
	old    bool   // see IsBefore72
	locked bool
	guard  *netio.Guard          // nil: none
	leave  func() (settled bool) // see Dialer.Serve; nil: it was not called
	end    func()                // of leave
}

// Locked reports whether Redis refuses all but a login on a connection that has no credentials. Else it has the rights
// of the default user, also when that gets a password.
func (c *Connections) Locked(nc net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[nc].locked
}

// Any is the id of a connection; 0: none is known.
func (c *Connections) Any() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.open {
		if known.id != 0 {
			return known.id
		}
	}
	return 0
}

// Opened notes a connection to an address that has not greeted yet. Closed stops its guard.
func (c *Connections) Opened(nc net.Conn, at string, guard *netio.Guard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]connected{}
	}
	c.open[nc] = connected{at: at, guard: guard}
}

// Greeted takes the answer to HELLO on a connection. locked: the connection has no credentials, and Redis demands some.
func (c *Connections) Greeted(nc net.Conn, hello resp.Value, locked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.open[nc]; ok {
		known.id, known.old, known.locked = ConnectionID(hello), IsBefore72(hello), locked
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

// Closed forgets a connection. It may be called again.
func (c *Connections) Closed(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[nc].guard.Stop()
	delete(c.open, nc)
}

// serve takes what Dialer.Serve says of an open connection.
func (c *Connections) serve(nc net.Conn, leave func() (settled bool), end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.open[nc]; ok {
		known.leave, known.end = leave, end
		c.open[nc] = known
	}
}

// elsewhere returns the open connections that were dialled at another address.
func (c *Connections) elsewhere(than string) (all []net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for nc, known := range c.open {
		if known.at != than {
			all = append(all, nc)
		}
	}
	return all
}

// leave ends those of the connections that are open still, unless a request is on its way there. late: also these. It
// returns the others.
func (c *Connections) leave(all []net.Conn, late bool) (rest []net.Conn) {
	var ends []func()
	c.mu.Lock()
	for _, nc := range all {
		switch known, open := c.open[nc]; {
		case !open:
		case known.leave == nil:
			ends = append(ends, func() { Abort(nc) })
		case known.leave() || late:
			ends = append(ends, known.end)
		default:
			rest = append(rest, nc)
		}
	}
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
	return rest
}

// At is the address at which an open connection was dialled; "" if it is not open.
func (c *Connections) At(nc net.Conn) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[nc].at
}

// To is the number of open connections that were dialled at an address.
func (c *Connections) To(at string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.open {
		if known.at == at {
			n++
		}
	}
	return n
}

// ConnectionID is the id in the answer to HELLO; 0: there is none.
func ConnectionID(hello resp.Value) uint64 { return uint64(max(hello.Field("id").Int, 0)) }

// IsBefore72 reports whether the answer to HELLO is that of a Redis before version 7.2.
func IsBefore72(hello resp.Value) bool {
	version := strings.SplitN(string(hello.Field("version").Str), ".", 3)
	if string(hello.Field("server").Str) != "redis" || len(version) < 2 {
		return false
	}
	major, err := strconv.Atoi(version[0])
	minor, _ := strconv.Atoi(version[1])
	return err == nil && (major < 7 || major == 7 && minor < 2)
}

// lent is a connection in the hands of a library that does its own handshake. It reads along until Redis has answered
// HELLO with the server's role.
type lent struct {
	net.Conn
	open  *Connections
	check func(role Role) error
	head  []byte // the bytes read so far, while the answer is looked for
	seen  bool   // the role was found, or is not going to come
}

// Lend returns a connection for a library that does its own handshake. check is told the role of the server. Its
// error is that of the library's read, before the library has sent a command.
func (c *Connections) Lend(nc net.Conn, check func(role Role) error) net.Conn {
	return &lent{Conn: nc, open: c, check: check}
}

// lentHead is the largest number of Redis's bytes before the role.
const lentHead = 4 << 10

var (
	roleField = []byte("$4\r\nrole\r\n$")
	lineEnd   = []byte("\r\n")
)

// Read implements net.Conn.
func (l *lent) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if !l.seen && n > 0 {
		if refusal := l.look(b[:n]); refusal != nil {
			return 0, refusal
		}
	}
	return n, err
}

func (l *lent) look(b []byte) error {
	l.head = append(l.head, b...)
	role, found := roleIn(l.head)
	if found || len(l.head) > lentHead {
		l.seen, l.head = true, nil
	}
	if found {
		return l.check(roleOf(role))
	}
	return nil
}

// roleIn finds the role in the answer to HELLO.
func roleIn(head []byte) (role string, found bool) {
	_, after, found := bytes.Cut(head, roleField)
	if !found {
		return "", false
	}
	_, after, _ = bytes.Cut(after, lineEnd) // the length
	word, _, whole := bytes.Cut(after, lineEnd)
	return string(word), whole
}

// Close implements net.Conn.
func (l *lent) Close() error {
	l.open.Closed(l.Conn)
	return l.Conn.Close()
}
