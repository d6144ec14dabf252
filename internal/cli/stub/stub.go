// Package stub is a proxy that gives prepared answers, for tests of the subcommands.
package stub

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/redcon"
)

// A Proxy answers what it was told to.
type Proxy struct {
	Addr string // host:port

	mu      sync.Mutex // guards the fields below
	answers []string
	asked   []string
}

// Start runs a proxy until the test ends. It gives one answer, in RESP without the last line end, to each command but
// the greetings of a new connection. At "" it closes the connection.
func Start(t testing.TB, answers ...string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), answers: answers}
	server := redcon.NewServer(p.Addr, p.answer, nil, nil)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return p
}

func (p *Proxy) answer(conn redcon.Conn, cmd redcon.Command) {
	var words []string
	for _, arg := range cmd.Args {
		words = append(words, string(arg))
	}
	if words[0] == "HELLO" || words[0] == "CLIENT" {
		conn.WriteString("OK")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, strings.Join(words, " "))
	switch n := len(p.asked); {
	case n > len(p.answers):
		conn.WriteError("ERR no answer is prepared")
	case p.answers[n-1] == "":
		_ = conn.Close()
	default:
		conn.WriteRaw([]byte(p.answers[n-1] + "\r\n"))
	}
}

// Want fails the test if the commands, without the greetings, are others. Their words are separated by spaces.
func (p *Proxy) Want(t testing.TB, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, want) {
		t.Errorf("the proxy was asked %q, want %q", p.asked, want)
	}
}
