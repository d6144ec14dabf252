package admin

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
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
	closed bool
}

func (c *conn) Close() error {
	c.closed = true
	return nil
}

// The one that has been idle longest makes room, and none that is being answered.
func TestConnectionsMakeRoom(t *testing.T) {
	gate := &connLimiter{Most: 3}
	all := make([]*conn, 8)
	closed := func() (list []int) {
		for i, c := range all {
			if c != nil && c.closed {
				list = append(list, i)
			}
		}
		return list
	}
	for i, step := range []struct {
		conn   int
		state  http.ConnState
		closed []int
	}{
		{0, http.StateNew, nil},
		{1, http.StateNew, nil},
		{0, http.StateActive, nil},
		{2, http.StateNew, nil},
		{1, http.StateActive, nil},
		{1, http.StateIdle, nil},
		{3, http.StateNew, []int{2}}, // idle for longer than 1
		{2, http.StateClosed, []int{2}},
		{4, http.StateNew, []int{1, 2}},
		{3, http.StateActive, []int{1, 2}},
		{4, http.StateActive, []int{1, 2}},
		{5, http.StateNew, []int{1, 2, 5}}, // none is idle
		{5, http.StateClosed, []int{1, 2, 5}},
		{0, http.StateClosed, []int{1, 2, 5}},
		{6, http.StateNew, []int{1, 2, 5}}, // there is room
		{7, http.StateNew, []int{1, 2, 5, 6}},
	} {
		if step.state == http.StateNew {
			all[step.conn] = &conn{}
		}
		gate.Track(all[step.conn], step.state)
		if got := closed(); !slices.Equal(got, step.closed) {
			t.Fatalf("step %d: %v are closed, want %v", i, got, step.closed)
		}
	}
}
