package blackbox

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
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
	plain := proxytest.Start(t, redistest.Start(t))
	secure := proxytest.Start(t, plain.Redis, func(o *proxy.Options) {
		o.Listen, o.TLS = []string{"tls:127.0.0.1:0"}, &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	for _, first := range []string{"*1\r\n$4\r\nPING\r\n", "PING\r\n"} {
		c := proxytest.Dial(t, secure.Addr())
		c.Raw(first)
		c.Gets("-ERR the proxy speaks TLS at this address\r\n")
		c.Ends()
	}
	nc, err := net.Dial("tcp", plain.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(proxytest.Patience)); err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(nc, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}).Handshake(); !errors.Is(err, io.EOF) {
		t.Errorf("the client gets %v", err)
	}
	for _, srv := range []*proxytest.Proxy{plain, secure} {
		proxytest.WaitFor(t, "the count of handshakes", func() bool { return srv.Stats().Closed["handshake"] > 0 })
	}
}
