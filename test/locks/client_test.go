package locks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// client is a connection whose failures fail the test.
type client struct {
	*conn
	t testing.TB
}

// dial connects to a proxy; the connection is closed when t ends.
func dial(t testing.TB, addr string, proto int) *client {
	t.Helper()
	c, err := dialRESP(addr, proto, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.hangUp)
	return &client{c, t}
}

// do sends a command, given as one line, and returns its reply.
func (c *client) do(line string) reply {
	c.t.Helper()
	v, err := c.conn.do(patience, strings.Fields(line)...)
	if err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return v
}

// want demands a reply; errors are compared by their code, given with a leading '-'.
func (c *client) want(line string, want reply) {
	c.t.Helper()
	compare(c.t, line, c.do(line), want)
}

// fence sends an acquire that must succeed and returns the fence.
func (c *client) fence(line string) int64 {
	c.t.Helper()
	return granted(c.t, line, c.do(line))
}

// start sends a command without waiting for its reply.
func (c *client) start(line string) {
	c.t.Helper()
	if err := c.send(strings.Fields(line)...); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
}

// later reads the reply of a command that was started.
func (c *client) later(limit time.Duration) reply {
	c.t.Helper()
	v, err := c.next(limit)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// silent fails the test if a reply arrives within d.
func (c *client) silent(d time.Duration) {
	c.t.Helper()
	v, err := c.next(d)
	if err == nil {
		c.t.Fatalf("reply %v, want none yet", v)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal(err)
	}
}

// wantGone demands that the proxy closes the connection.
func (c *client) wantGone(limit time.Duration) {
	c.t.Helper()
	for {
		v, err := c.next(limit)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.t.Fatalf("the connection is still open after %v", limit)
		case err != nil:
			return
		}
		c.t.Logf("before the end: %v", v)
	}
}

func compare(t testing.TB, what string, got, want reply) {
	t.Helper()
	if e, ok := got.(errorReply); ok {
		got = "-" + e.code()
	}
	if n, ok := want.(int); ok {
		want = int64(n)
	}
	if got != want {
		t.Fatalf("%s: reply %v, want %v", what, got, want)
	}
}

func granted(t testing.TB, what string, v reply) int64 {
	t.Helper()
	n, ok := v.(int64)
	if !ok || n < 1 {
		t.Fatalf("%s: reply %v, want a fence", what, v)
	}
	return n
}

// holder is a client process that holds a lock and does nothing else.
type holder struct {
	*redistest.Process
	fence string
	out   *os.File
}

// startHolder runs a client process that sends one command and then keeps its connection open. It returns when the
// command has been answered.
func startHolder(t testing.TB, addr, line string) *holder {
	t.Helper()
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wr.Close()
	cmd := exec.Command(os.Args[0], append([]string{addr}, strings.Fields(line)...)...)
	cmd.Env = append(os.Environ(), childEnv+"=holder")
	cmd.Stdout, cmd.Stderr = wr, os.Stderr
	h := &holder{out: rd}
	if h.Process, err = startProcess("", cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Kill()
		rd.Close()
	})
	_ = rd.SetReadDeadline(time.Now().Add(patience))
	said, err := bufio.NewReader(rd).ReadString('\n')
	if err != nil {
		t.Fatalf("the holder's first word: %v", err)
	}
	h.fence = strings.TrimSpace(said)
	return h
}

// holderMain is the client process: address, then the command. It ends by a signal or with the connection.
func holderMain(args []string) int {
	c, err := dialRESP(args[0], 3, patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		return 1
	}
	v, err := c.do(patience, args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		return 1
	}
	fmt.Fprintln(os.Stdout, v)
	_ = c.nc.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, c.rd)
	return 0
}

// startWaiter is startHolder for a command that is not answered soon.
func startWaiter(t testing.TB, addr, line string) *redistest.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{addr}, strings.Fields(line)...)...)
	cmd.Env = append(os.Environ(), childEnv+"=holder")
	cmd.Stderr = os.Stderr
	p, err := startProcess("", cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// fieldsOf turns a flat reply of names and values into a map.
func fieldsOf(flat []any) map[string]string {
	m := make(map[string]string)
	for i := 0; i+1 < len(flat); i += 2 {
		m[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	return m
}
