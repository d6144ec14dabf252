package blackbox

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// userTimeout is tcp.user-timeout in the tests of this file. Linux answers a probe for room only half a second after
// another one, so it is longer than that.
const userTimeout = 2 * time.Second

func patient(o *proxy.Options) { o.UserTimeout, o.Upstream.UserTimeout = userTimeout, userTimeout }

// A client that does not read while replies wait is alive: a paged redis-cli, a batch, a breakpoint.
func TestAClientThatDoesNotReadKeepsItsConnection(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		const size, n = 1 << 20, 40
		srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS, patient)
		c := dial(srv)
		c.Send("SETRANGE", "large", "1048575", "x")
		if got, err := c.Frame(); err != nil || got != ":1048576\r\n" {
			t.Fatal(got, err)
		}
		c.Raw(strings.Repeat("GET large\r\n", n))
		time.Sleep(3 * userTimeout) // it is the time for which it does not read
		if err := c.Conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		got, err := io.CopyN(io.Discard, bufio.NewReader(c.Conn), n*(size+int64(len("$1048576\r\n\r\n"))))
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
	})
}

// A Redis that carries out a long command does not read either. Here it is stopped.
func TestARedisThatDoesNotReadKeepsItsConnections(t *testing.T) {
	t.Parallel()
	const commands = 6
	srv := proxytest.Start(t, redistest.Start(t), patient)
	c := srv.Dial(t)
	c.Send("PING")
	if got, err := c.Frame(); err != nil || got != "+PONG\r\n" {
		t.Fatal(got, err)
	}
	srv.Redis.Pause()
	time.AfterFunc(3*userTimeout, srv.Redis.Continue)
	sent := make(chan error, 1)
	go func() { // the proxy does not take all of it at once
		set := resp.AppendCommand(nil, "SET", "large", strings.Repeat("x", 3<<20))
		_, err := c.Conn.Write(bytes.Repeat(set, commands))
		sent <- err
	}()
	for range commands {
		if got, err := c.Frame(); err != nil || got != "+OK\r\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
