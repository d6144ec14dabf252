package dial

import (
	"net"
	"sync"
	"time"
)

// Leaver is a connection to the old address.
type Leaver interface {
	// Leave takes no more requests for the connection, and reports whether none is on its way. It is called several
	// times.
	Leave() (settled bool)

	// Abort ends the connection. Requests on their way are reported as sent.
	Abort()
}

const (
	// settleLimit is the time for replies. A server that answers at all needs less, and a server that is gone delays its
	// clients by no more.
	settleLimit = 100 * time.Millisecond

	// lookEvery is the pause between two looks at the requests on their way.
	lookEvery = time.Millisecond
)

// All ends connections as they settle, and returns when all have been ended or stop is closed.
//
// They are connections to a server that has moved.
//
// No connection to the old address gets another request. Requests on their way get a short time for their replies,
// because the old server answers them if the move was planned. Then the connections are aborted: a server that has been
// stopped would keep them for ever, because its kernel acknowledges all that it is sent.
//
// It starts no goroutines.
func All(leavers []Leaver, stop <-chan struct{}) {
	end := time.Now().Add(settleLimit)
	for {
		late := !time.Now().Before(end)
		rest := leavers[:0]
		for _, one := range leavers {
			if one.Leave() || late {
				one.Abort()
			} else {
				rest = append(rest, one)
			}
		}
		if leavers = rest; len(leavers) == 0 {
			return
		}
		select {
		case <-time.After(lookEvery):
		case <-stop:
			return
		}
	}
}

// Connection is the present connection of a lane, for goroutines that end it. The zero value has none.
type Connection struct {
	mu   sync.Mutex
	nc   net.Conn      // nil: there is none
	over chan struct{} // closed to end nc
}

// Begin notes a new connection, and returns a channel that End closes.
func (c *Connection) Begin(nc net.Conn) (over <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.over = nc, make(chan struct{})
	return c.over
}

// End ends the connection, if there is one. It is also called when the connection has ended by itself.
func (c *Connection) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *Connection) endLocked() {
	if c.nc != nil {
		close(c.over)
		c.nc, c.over = nil, nil
	}
}

// Leaver returns the connection for All, if it is one to another address. leave is called while it is the present one.
func (c *Connection) Leaver(isElsewhere func(net.Conn) bool, leave func() (settled bool)) (l Leaver, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil || !isElsewhere(c.nc) {
		return nil, false
	}
	leave()
	return leaver{c, c.nc, leave}, true
}

// leaver is one connection. The lane may have a later one by now.
type leaver struct {
	c     *Connection
	nc    net.Conn
	leave func() (settled bool)
}

func (l leaver) Leave() (settled bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.nc != l.nc || l.leave()
}

func (l leaver) Abort() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.nc == l.nc {
		l.c.endLocked()
	}
}
