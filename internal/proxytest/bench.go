package proxytest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Bench is a Redis with a proxy in front of it: the same bytes sent to either must be answered by the same bytes.
type Bench struct {
	Redis *redistest.Server
	Proxy *Proxy
}

// NewBench starts a Redis and a proxy in front of it.
func NewBench(t testing.TB, redisArgs ...string) *Bench {
	t.Helper()
	redisArgs = append([]string{"--slowlog-log-slower-than", "-1"}, redisArgs...) // what is slow is chance
	redis := redistest.Start(t, redisArgs...)
	return &Bench{Redis: redis, Proxy: Start(t, redis)}
}

// Clean makes Redis what it was at the start.
func (b *Bench) Clean(t testing.TB) {
	t.Helper()
	for _, cmd := range [][]any{
		{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"}, {"CONFIG", "RESETSTAT"}, {"SLOWLOG", "RESET"},
	} {
		b.Redis.Do(t, cmd...)
	}
}

// Compare runs a script on a direct connection and through the proxy and compares what the clients got.
func (b *Bench) Compare(t *testing.T, script func(s *Side)) {
	t.Helper()
	direct := b.run(t, "direct", b.Redis.Addr(), script)
	if slices.ContainsFunc(direct, func(line string) bool { return strings.HasSuffix(line, ErrTimeout.Error()) }) {
		t.Fatalf("the script expects more than Redis sends:\n%s", strings.Join(direct, "\n"))
	}
	if diff := cmp.Diff(direct, b.run(t, "proxy", b.Proxy.Addr(), script)); diff != "" {
		t.Errorf("replies differ (-direct +proxy):\n%s", diff)
	}
}

func (b *Bench) run(t *testing.T, title, addr string, script func(s *Side)) []string {
	t.Helper()
	b.Clean(t)
	redistest.Eventually(t, Patience, "the clients of the last run to be gone", func() bool {
		info, _ := b.Redis.Do(t, "INFO").(string)
		return strings.Contains(info, "\npubsub_channels:0\r") &&
			strings.Contains(info, "\npubsub_patterns:0\r") &&
			strings.Contains(info, "\nblocked_clients:0\r")
	})
	s := &Side{T: t, Redis: b.Redis, Addr: addr, Title: title}
	script(s)
	s.Close()
	return s.Transcript
}

// Both runs the script in RESP2 and in RESP3.
func (b *Bench) Both(t *testing.T, script func(s *Side, proto int)) {
	t.Helper()
	for proto := 2; proto <= 3; proto++ {
		t.Run("RESP"+strconv.Itoa(proto), func(t *testing.T) {
			b.Compare(t, func(s *Side) { script(s, proto) })
		})
	}
}

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
