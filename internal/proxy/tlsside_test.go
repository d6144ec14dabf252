package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A client on the wrong side of TLS is told so, where it can be, and does not wait.
func TestClientsOnTheWrongSideOfTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	cert, err := tls.LoadX509KeyPair(a.Issue(t, "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	eachEngine(t, func(t *testing.T, redis *redistest.Server, plain *Server) {
		secure := startProxy(t, redis, func(o *Options) {
			o.Engine, o.Listen, o.TLS = plain.opts.Engine, []string{"tls:127.0.0.1:0"}, &tls.Config{Certificates: []tls.Certificate{cert}}
		})
		for _, first := range []string{"*1\r\n$4\r\nPING\r\n", "PING\r\n"} {
			c := dialClient(t, address(secure))
			c.raw(first)
			if got, err := c.frame(); got != "-ERR the proxy speaks TLS at this address\r\n" || err != nil {
				t.Errorf("%q is answered %q, %v", first, got, err)
			}
			c.ends()
		}
		nc, err := net.Dial("tcp", address(plain))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(nc, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}).Handshake(); !errors.Is(err, io.EOF) {
			t.Errorf("the client gets %v", err)
		}
		for _, srv := range []*Server{plain, secure} {
			waitFor(t, "the count of handshakes", func() bool { return srv.Stats().Closed["handshake"] > 0 })
		}
	})
}
