package proxytest

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Side is one run of a script: its clients are all connected to the same place.
type Side struct {
	T          *testing.T
	Redis      *redistest.Server // the server behind it
	Addr       string
	Title      string
	clients    []*Client
	Transcript []string
	masks      []mask
	Ignored    *regexp.Regexp // frames that come or not, by chance; nil: none
}

// mask hides what differs by nature, as listed in docs/DIVERGENCE.md.
type mask struct {
	pattern *regexp.Regexp
	with    string
}

// Hide replaces every match of pattern in what is noted from now on.
func (s *Side) Hide(pattern, with string) {
	s.masks = append(s.masks, mask{regexp.MustCompile(pattern), with})
}

// HideHelloID hides the connection id in the answer to HELLO.
func (s *Side) HideHelloID() { s.Hide(`\$2\r\nid\r\n:\d+`, "$$2\r\nid\r\n:ID") }

// Note adds a line to the transcript.
func (s *Side) Note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.Transcript = append(s.Transcript, line)
}

// Close closes the connections of all clients.
func (s *Side) Close() {
	for _, c := range s.clients {
		_ = c.Conn.Close()
	}
}

// Client connects a client with a label for the transcript.
func (s *Side) Client(label string) *Client {
	s.T.Helper()
	c := Dial(s.T, s.Addr)
	c.Label, c.Side = label, s
	s.clients = append(s.clients, c)
	return c
}

// Speaking connects a client that has switched to the protocol version.
func (s *Side) Speaking(label string, proto int) *Client {
	s.T.Helper()
	c := s.Client(label)
	if proto == 3 {
		c.Quiet("HELLO", "3")
	}
	return c
}

// AwaitBlocked waits until n clients are blocked in Redis.
func (s *Side) AwaitBlocked(n int) {
	s.T.Helper()
	AwaitBlocked(s.T, n, s.Redis)
}
