package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// dial connects to a proxy that gives some answers.
func dial(t *testing.T, answers ...string) (*Conn, *stubProxy) {
	t.Helper()
	p := startStub(t, answers...)
	target, err := parseTarget(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), target, "name")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, p
}

// Pushes may stand in front of a reply. They are no answers, and nobody has to take them.
func TestPushesAreNoAnswers(t *testing.T) {
	const push = ">4\r\n$9\r\nlock-lost\r\n$1\r\nk\r\n:7\r\n$5\r\ntaken\r\n"
	many := ""
	for range mostPushes + 5 {
		many += push
	}
	c, _ := dial(t, many+":1", "$-1")
	v, err := c.Do(t.Context(), "ONE")
	if err != nil || v.Kind != resp.Integer || v.Int != 1 {
		t.Errorf("the first answer is %+v, %v", v, err)
	}
	if v, err := c.Do(t.Context(), "TWO"); err != nil || !v.Null {
		t.Errorf("the second answer is %+v, %v", v, err)
	}
	if n := len(c.Pushes()); n != mostPushes {
		t.Errorf("%d pushes are kept, want %d", n, mostPushes)
	}
	if p := <-c.Pushes(); len(p.Elems) != 4 || string(p.Elems[1].Str) != "k" || p.Elems[2].Int != 7 {
		t.Errorf("a push is %+v", p)
	}
}

func TestErrorsHaveTheirKinds(t *testing.T) {
	c, _ := dial(t, "-NOTHELD not yours", "")
	_, err := c.Do(t.Context(), "ONE")
	if !isCode(err, "NOTHELD") || isCode(err, "NOT") || !isCode(fmt.Errorf("so: %w", err), "NOTHELD") {
		t.Errorf("an error reply is %v", err)
	}
	if _, err = c.Do(t.Context(), "TWO"); !errors.Is(err, errClosed) || isCode(err, "ERR") {
		t.Errorf("the end of the connection is %v", err)
	}
	select {
	case <-c.Closed():
	default:
		t.Error("nobody is told of the end")
	}
}

// The end of the time for a command is its error, whatever the proxy does.
func TestACommandEndsWithItsTime(t *testing.T) {
	c, _ := dial(t, "$100000\r\nnot all of it")
	why := errors.New("why")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	if _, err := c.Do(ctx, "ONE"); !errors.Is(err, why) {
		t.Errorf("the error is %v", err)
	}
}

func TestAConnectionGreets(t *testing.T) {
	for _, test := range []struct {
		url     string
		answers []string
		asked   []string
		ok      bool
	}{
		{"/3", []string{"+OK"}, []string{"SELECT 3"}, true},
		{"/3", []string{"-ERR DB index is out of range"}, []string{"SELECT 3"}, false},
		{"", nil, nil, true},
	} {
		p := startStub(t, test.answers...)
		target, err := parseTarget("redis://" + p.addr + test.url)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Dial(t.Context(), target, "name")
		if (err == nil) != test.ok {
			t.Errorf("%q: %v", test.url, err)
		}
		if err == nil {
			c.Close()
		}
		p.want(t, test.asked...)
	}
}

func TestReadyIsOnlyPongOrNoauth(t *testing.T) {
	for answer, want := range map[string]string{
		"+PONG":                            "",
		"-NOAUTH Authentication required.": "",
		"-LOADING Redis is loading":        "PING: LOADING Redis is loading",
		"+OK":                              `PING: "OK"`,
		"HTTP/1.1 400 Bad Request":         "has closed the connection",
		"+" + strings.Repeat("x", 1<<20):   "PING: ",
		"":                                 "has closed the connection",
	} {
		err := Ready(t.Context(), Target{Network: "tcp", Addr: startStub(t, answer).addr})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: got %v, want %q", answer, err, want)
		}
	}
}

func TestAProxyThatIsSilentIsNotAlive(t *testing.T) {
	if err := Alive(t.Context(), Target{Network: "tcp", Addr: startStub(t).addr}); err != nil {
		t.Errorf("a proxy that answers: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts, and the system does
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Alive(ctx, Target{Network: "tcp", Addr: l.Addr().String()}); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("a silent one is alive: %v", err)
	}
}
