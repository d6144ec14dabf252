package blackbox

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A client on the wrong side of TLS is told so, where it can be, and does not wait.
func TestClientsOnTheWrongSideOfTLS(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS)
	for _, first := range []string{"*1\r\n$4\r\nPING\r\n", "PING\r\n"} {
		c := proxytest.Dial(t, tlsAddr(srv))
		c.Raw(first)
		c.Gets("-ERR the proxy speaks TLS at this address\r\n")
		c.Ends()
	}
	nc, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(proxytest.Patience)); err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).Handshake(); !errors.Is(err, io.EOF) {
		t.Errorf("the client gets %v", err)
	}
	proxytest.WaitFor(t, "the count of handshakes", func() bool { return srv.Stats().Closed["handshake"] == 3 })
}
