package admin

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOnlyKnownHostsPass(t *testing.T) {
	hosts := hostNamesFor("Listen.example")
	handler := hosts.Check(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]bool{
		"": true, "localhost": true, "LOCALHOST:80": true, "listen.example.": true, "LISTEN.example:80": true,
		"127.0.0.1": true, "10.1.2.3:80": true, "[::1]": true, "[::1]:80": true,
		"other.example": false, "listen.example.other": false, "127.0.0.1.other": false, ".": false, ":80": false, "x.localhost": false,
	} {
		r, answer := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Host = host
		handler.ServeHTTP(answer, r)
		if code := answer.Code; code != http.StatusOK && code != http.StatusMisdirectedRequest || (code == http.StatusOK) != want {
			t.Errorf("%q: %d", host, code)
		}
	}
}

// conn is a connection that notes that it has been closed.
type conn struct {
	net.Conn
	state  http.ConnState // as the server has reported it last
	closed bool
}

func (c *conn) Close() error {
	c.closed = true
	return nil
}

// The server reports the end of a connection some time after the connection has been closed.
func TestConnectionsStayBelowTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gate := &connLimiter{Most: rapid.IntRange(1, 4).Draw(t, "most")}
		var all []*conn // the longest idle first, apart from those that are answered
		report := func(c *conn, state http.ConnState) {
			c.state = state
			gate.Track(c, state)
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			open := slices.DeleteFunc(slices.Clone(all), func(c *conn) bool { return c.closed })
			idle := slices.DeleteFunc(slices.Clone(open), func(c *conn) bool { return c.state == http.StateActive })
			if rapid.Bool().Draw(t, "new") || len(all) == 0 {
				c := &conn{}
				report(c, http.StateNew)
				all = append(all, c)
				victim := c
				if len(idle) > 0 {
					victim = idle[0]
				}
				if full := len(open) == gate.Most; victim.closed && !full {
					t.Fatalf("a connection is closed for another one, and %d are open", len(open))
				} else if full && !victim.closed {
					t.Fatalf("%d are open, and not the one is closed that has been idle longest, or else the new one", len(open))
				}
			} else {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				switch c := all[i]; {
				case c.closed || rapid.Bool().Draw(t, "ends"):
					c.closed = true
					report(c, http.StateClosed)
					all = slices.Delete(all, i, i+1)
				case c.state == http.StateActive:
					report(c, http.StateIdle)
					all = append(slices.Delete(all, i, i+1), c)
				default:
					report(c, http.StateActive)
				}
			}
			n := 0
			for _, c := range all {
				if !c.closed {
					n++
				}
			}
			if n > gate.Most {
				t.Fatalf("%d are open, want at most %d", n, gate.Most)
			}
		}
	})
}
