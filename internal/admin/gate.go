package admin

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// hostNames has the names under which a request may ask for this server.
type hostNames []string

// hostNamesFor allows the name that is listened on, and localhost.
func hostNamesFor(listen string) hostNames { return hostNames{"localhost", strings.ToLower(listen)} }

// Check answers only requests for a known name or for an IP address. A web page can make the name of its own host lead
// to this server's address, have its visitor's browser send a request, and read the answer. Such a request names the
// page's host. A request without a host, as balancers send in HTTP/1.0, is from no browser.
func (h hostNames) Check(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r.Host) {
			reply(w, http.StatusMisdirectedRequest, "this host name is not known here: ask for the IP address")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h hostNames) allow(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	return host != "" && slices.Contains(h, host)
}

// connLimiter keeps the number of connections below a limit. A new connection takes the place of the one that has been
// idle longest. If none is idle, the new one is closed.
type connLimiter struct {
	Most int // immutable

	mu   sync.Mutex
	all  map[net.Conn]bool // whether it is being answered
	idle []net.Conn        // the other connections, the longest idle first
}

// Track is http.Server.ConnState.
func (c *connLimiter) Track(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.idle, nc); i >= 0 {
		c.idle = slices.Delete(c.idle, i, i+1)
	}
	switch state {
	case http.StateNew:
		if c.all == nil {
			c.all = map[net.Conn]bool{}
		}
		if len(c.all) >= c.Most && !c.evictLocked() {
			_ = nc.Close() // the server notices, and reports StateClosed
			return         // no later one may take its place
		}
		c.all[nc] = false
		c.idle = append(c.idle, nc)
	case http.StateIdle:
		c.all[nc] = false
		c.idle = append(c.idle, nc)
	case http.StateActive:
		c.all[nc] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.all, nc)
	}
}

func (c *connLimiter) evictLocked() bool {
	if len(c.idle) == 0 {
		return false
	}
	nc := c.idle[0]
	c.idle = c.idle[1:]
	delete(c.all, nc)
	_ = nc.Close() // its handler ends, and reports StateClosed
	return true
}
