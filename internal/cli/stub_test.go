package cli

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/redcon"
)

// TestMain ends a guard that a test has started by mistake: it would run the tests, which start guards.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardName {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// stubProxy gives prepared answers.
type stubProxy struct {
	addr string // host:port

	mu      sync.Mutex // guards the fields below
	answers []string
	asked   []string
}

// startStub runs a proxy until the test ends. It gives one answer, in RESP without the last line end, to each command
// but the greetings of a new connection. At "" it closes the connection.
func startStub(t testing.TB, answers ...string) *stubProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stubProxy{addr: l.Addr().String(), answers: answers}
	server := redcon.NewServer(p.addr, p.answer, nil, nil)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return p
}

func (p *stubProxy) answer(conn redcon.Conn, cmd redcon.Command) {
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

// heard is the commands, without the greetings.
func (p *stubProxy) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// want fails the test if the commands, without the greetings, are others. Their words are separated by spaces.
func (p *stubProxy) want(t testing.TB, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, want) {
		t.Errorf("the proxy was asked %q, want %q", p.asked, want)
	}
}
