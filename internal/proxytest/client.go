package proxytest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Client is one client connection of a test.
type Client struct {
	T     testing.TB
	Conn  net.Conn
	Label string
	Side  *Side // nil: nothing is noted
	Buf   []byte
	scan  resp.Scanner
}

// Dial connects a client, by TCP, to "unix:PATH" or, over TLS, to "tls:HOST:PORT".
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	addr, secure := strings.CutPrefix(addr, "tls:")
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true}) // the certificate is not what is tested
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &Client{T: t, Conn: nc}
}

// Socket is the client's connection, under TLS if it speaks that.
func (c *Client) Socket() *net.TCPConn {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return secure.NetConn().(*net.TCPConn)
	}
	return c.Conn.(*net.TCPConn)
}

// Raw sends bytes as they are.
func (c *Client) Raw(b string) {
	c.T.Helper()
	if _, err := io.WriteString(c.Conn, b); err != nil && c.Side == nil {
		c.T.Fatalf("%s: write: %v", c.Label, err)
	}
}

// Send sends one command.
func (c *Client) Send(args ...string) {
	c.T.Helper()
	c.Raw(string(resp.AppendCommand(nil, args...)))
}

// ErrTimeout says that nothing came in time.
var ErrTimeout = errors.New("nothing came")

// Frame reads one whole frame.
func (c *Client) Frame() (string, error) {
	for end := 0; ; {
		n, whole, err := c.scan.Scan(c.Buf[end:])
		if err != nil {
			return "", fmt.Errorf("%w in %q", err, c.Buf)
		}
		if end += n; whole {
			b := string(c.Buf[:end])
			c.Buf, end = c.Buf[end:], 0
			if c.Side != nil && c.Side.Ignored != nil && c.Side.Ignored.MatchString(b) {
				continue
			}
			return b, nil
		}
		if err := c.More(); err != nil {
			part := string(c.Buf)
			c.Buf = nil
			c.scan = resp.Scanner{}
			return part, err
		}
	}
}

// LateFrame is frame for one that may take several times as long to begin as others.
func (c *Client) LateFrame() (b string, err error) {
	for range 6 {
		if b, err = c.Frame(); !errors.Is(err, ErrTimeout) || b != "" {
			break
		}
	}
	return b, err
}

// More reads what has come, or comes in time, into Buf.
func (c *Client) More() error {
	_ = c.Conn.SetReadDeadline(time.Now().Add(Patience))
	chunk := make([]byte, 64<<10)
	n, err := c.Conn.Read(chunk)
	c.Buf = append(c.Buf, chunk[:n]...)
	var timeout net.Error
	switch {
	case n > 0:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	}
	return io.EOF // how a connection ends, FIN or RST, is not compared
}

// Expect notes n frames.
func (c *Client) Expect(n int) {
	c.T.Helper()
	for range n {
		b, err := c.Frame()
		c.Note(b, err)
		if err != nil {
			return
		}
	}
}

// Note notes a frame, or the error in its place. Without a side an error ends the test.
func (c *Client) Note(b string, err error) {
	c.T.Helper()
	if c.Side == nil {
		if err != nil {
			c.T.Fatalf("%s: %q, %v", c.Label, b, err)
		}
		return
	}
	for _, m := range c.Side.masks {
		b = m.pattern.ReplaceAllString(b, m.with)
	}
	if err != nil {
		c.Side.Note("%s: %q, then %v", c.Label, b, err)
		return
	}
	c.Side.Note("%s: %q", c.Label, b)
}

// Do sends one command and notes one frame.
func (c *Client) Do(args ...string) string {
	c.T.Helper()
	c.Send(args...)
	b, err := c.Frame()
	c.Note(b, err)
	return b
}

// Each sends commands, given as lines of words without blanks, one by one, and notes a frame for each.
func (c *Client) Each(lines ...string) {
	c.T.Helper()
	for _, line := range lines {
		c.Do(strings.Fields(line)...)
	}
}

// Together sends lines in one go and notes as many frames.
func (c *Client) Together(lines ...string) {
	c.T.Helper()
	c.Raw(Inline(lines...))
	c.Expect(len(lines))
}

// Quiet sends one command and returns its reply without a note.
func (c *Client) Quiet(args ...string) string {
	c.T.Helper()
	c.Send(args...)
	b, err := c.Frame()
	if err != nil {
		c.T.Fatalf("%s: %q: %q, %v", c.Label, args, b, err)
	}
	return b
}

// Ask sends one command of words without blanks and returns its reply without a note.
func (c *Client) Ask(command string) string {
	c.T.Helper()
	return c.Quiet(strings.Fields(command)...)
}

// Next is the next frame. It is not noted.
func (c *Client) Next() string {
	c.T.Helper()
	b, err := c.Frame()
	if err != nil {
		c.T.Fatalf("%s: %q, %v", c.Label, b, err)
	}
	return b
}

// Granted acquires a lock for a short time. On a machine that stands still, that time may be over before the grant
// comes, and it is acquired anew.
func (c *Client) Granted(args ...string) {
	c.T.Helper()
	redistest.Eventually(c.T, Patience, "a grant that comes in time", func() bool { return c.Quiet(args...)[0] == ':' })
}

// Until notes frames up to one that contains word.
func (c *Client) Until(word string) {
	c.T.Helper()
	for {
		b, err := c.Frame()
		c.Note(b, err)
		if err != nil || strings.Contains(b, word) {
			return
		}
	}
}

// Sync proves that nothing else has come: it notes everything up to the echo of a word.
func (c *Client) Sync() {
	c.T.Helper()
	c.Send("PING", "in-sync")
	c.Until("in-sync")
}

// End notes everything up to the end of the connection.
func (c *Client) End() {
	c.T.Helper()
	for {
		b, err := c.Frame()
		c.Note(b, err)
		if err != nil {
			return
		}
	}
}

// HalfClose says that nothing more will be sent.
func (c *Client) HalfClose() {
	c.T.Helper()
	_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite() // the other side may have closed already
}

// Integer reads the number in an integer reply.
func Integer(t testing.TB, reply string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(reply, ":"), "\r\n"))
	if err != nil {
		t.Fatalf("%q is not an integer reply", reply)
	}
	return n
}

// Inline joins lines as a telnet user would type them.
func Inline(lines ...string) string {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\r\n")
	}
	return b.String()
}

// ID is the answer to CLIENT ID.
func (c *Client) ID() string {
	c.T.Helper()
	return strconv.Itoa(Integer(c.T, c.Quiet("CLIENT", "ID")))
}

// Named connects a client that has given itself a name.
func Named(t *testing.T, addr, name string) *Client {
	t.Helper()
	c := Dial(t, addr)
	c.Label = name
	if got := c.Quiet("CLIENT", "SETNAME", name); got != "+OK\r\n" {
		t.Fatalf("SETNAME: %q", got)
	}
	return c
}

// Loses sends a command, and expects the end of the connection in place of its reply.
func (c *Client) Loses(line string) {
	c.T.Helper()
	c.Send(strings.Fields(line)...)
	c.Ends()
}

// Anew is the reply to a command on a new connection; empty: the connection was closed.
func (srv *Proxy) Anew(t testing.TB, line string) string {
	t.Helper()
	c := Dial(t, srv.Addr())
	defer c.Conn.Close()
	c.Send(strings.Fields(line)...)
	b, _ := c.Frame()
	return b
}

// Ends expects the end of the connection.
func (c *Client) Ends() {
	c.T.Helper()
	if b, err := c.Frame(); !errors.Is(err, io.EOF) || b != "" {
		c.T.Fatalf("%s: %q, %v instead of the end", c.Label, b, err)
	}
}

// ExpectFrame fails unless the next frame has all these parts.
func (c *Client) ExpectFrame(parts ...string) {
	c.T.Helper()
	got, err := c.Frame()
	for _, part := range parts {
		if err != nil || !strings.Contains(got, "\r\n"+part+"\r\n") {
			c.T.Fatalf("got %q (%v), want %q", got, err, parts)
		}
	}
}

// FrameWithin reads one whole frame, if one begins within a time.
func (c *Client) FrameWithin(limit time.Duration) (string, bool) {
	if len(c.Buf) == 0 {
		_ = c.Conn.SetReadDeadline(time.Now().Add(limit))
		chunk := make([]byte, 4096)
		n, _ := c.Conn.Read(chunk)
		c.Buf = append(c.Buf, chunk[:n]...)
	}
	if len(c.Buf) == 0 {
		return "", false
	}
	got, err := c.Frame()
	return got, err == nil
}

// Script sends commands one by one, each with the start of its reply, as Gets compares it. A push that comes in between
// makes a difference.
func (c *Client) Script(pairs ...string) {
	c.T.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := c.Do(strings.Fields(pairs[i])...); !begins(got, pairs[i+1]) {
			c.T.Errorf("%s: %.100s: %.300q, want %.300q", c.Label, pairs[i], got, pairs[i+1])
		}
	}
}

// Gets reads as many replies as there are words, each of which must begin so. Numbers are compared as a whole, as ":1"
// is; ":" stands for any.
func (c *Client) Gets(starts ...string) {
	c.T.Helper()
	for i, start := range starts {
		if got, err := c.Frame(); err != nil || !begins(got, start) {
			c.T.Fatalf("%s: reply %d of %d: %.300q, %v, want %.300q", c.Label, i+1, len(starts), got, err, start)
		}
	}
}

func begins(reply, start string) bool {
	if len(start) > 1 && start[0] == ':' {
		return strings.TrimSuffix(reply, "\r\n") == strings.TrimSuffix(start, "\r\n")
	}
	return strings.HasPrefix(reply, start)
}

// DialFrom connects a client from another address.
func DialFrom(t *testing.T, from, addr string) *Client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.Dial("tcp", addr)
	if err != nil {
		t.Skipf("this system has no address %s: %v", from, err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &Client{T: t, Conn: nc}
}
