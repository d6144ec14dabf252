package blackbox

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// header is a PROXY header of a version.
func header(t *testing.T, version byte, source, destination net.Addr) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := proxyproto.HeaderProxyFromAddrs(version, source, destination).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func local(t *testing.T, version byte) []byte {
	t.Helper()
	var b bytes.Buffer
	h := &proxyproto.Header{Version: version, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	if _, err := h.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The header, the first commands and the last ones arrive in one segment: none of it may get lost on the way to whoever
// serves the connection.
func TestProxyHeaderNamesTheClient(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	client4, here4 := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7).To4(), Port: 4242}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 7379}
	client6, here6 := &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 4242}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 7379}
	tests := []struct {
		name, mode string
		header     []byte
		want       string // empty: who has connected
	}{
		{"v1", proxy.ProxyRequired, header(t, 1, client4, here4), "192.0.2.7:4242"},
		{"v2", proxy.ProxyRequired, header(t, 2, client4, here4), "192.0.2.7:4242"},
		{"v1 IPv6", proxy.ProxyOptional, header(t, 1, client6, here6), "[2001:db8::7]:4242"},
		{"v2 IPv6", proxy.ProxyOptional, header(t, 2, client6, here6), "[2001:db8::7]:4242"},
		{"v1 local", proxy.ProxyRequired, []byte("PROXY UNKNOWN\r\n"), ""},
		{"v2 local", proxy.ProxyRequired, local(t, 2), ""},
		{"v2 without addresses", proxy.ProxyRequired, []byte(string(proxyproto.SIGV2) + "\x21\x00\x00\x00"), ""},
		{"v2 without addresses, with more", proxy.ProxyOptional, []byte(string(proxyproto.SIGV2) + "\x21\x00\x00\x06\x04\x00\x03abc"), ""},
		{"v2 without addresses, by TCP", proxy.ProxyRequired, []byte(string(proxyproto.SIGV2) + "\x21\x01\x00\x00"), ""},
		{"v2 local, of an unknown family", proxy.ProxyRequired, []byte(string(proxyproto.SIGV2) + "\x20\x41\x00\x02ab"), ""},
		{"none", proxy.ProxyOptional, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			srv := proxytest.Start(t, redis, proxytest.WithTLS, func(o *proxy.Options) { o.ProxyProtocol = test.mode })
			plain, under := srv.Dial(t), proxytest.Dial(t, tlsAddr(srv))
			commands := resp.AppendCommand(nil, "LOCK", t.Name()+"1")
			commands = resp.AppendCommand(commands, "LOCKLIST", "MATCH", "*1")
			if _, err := plain.Conn.Write(append(bytes.Clone(test.header), commands...)); err != nil {
				t.Fatal(err)
			}
			expectClient(t, plain, test.want)

			if _, err := under.Conn.Write(test.header); err != nil {
				t.Fatal(err)
			}
			nc := tls.Client(under.Conn, &tls.Config{InsecureSkipVerify: true})
			secure := &proxytest.Client{T: t, Conn: nc}
			commands = resp.AppendCommand(nil, "LOCK", t.Name()+"2")
			commands = resp.AppendCommand(commands, "LOCKLIST", "MATCH", "*2")
			if _, err := secure.Conn.Write(commands); err != nil {
				t.Fatal(err)
			}
			expectClient(t, secure, test.want)
		})
	}
}

// expectClient reads the replies to LOCK and LOCKLIST: the lock must be shown with the client's address, or with that
// of the socket if want is empty.
func expectClient(t *testing.T, c *proxytest.Client, want string) {
	t.Helper()
	if want == "" {
		want = c.Conn.LocalAddr().String()
	}
	c.Gets(":")
	list := decode(t, c.Next())
	if len(list.Elems) != 1 {
		t.Fatalf("%d locks", len(list.Elems))
	}
	if got := field(list.Elems[0], "client"); got != want {
		t.Errorf("client %q, want %q", got, want)
	}
}

// Without a header the proxy must not wait for bytes that could make one.
func TestShortCommandsAreNotTakenForAHeader(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.ProxyProtocol = proxy.ProxyOptional })
	for _, inline := range []string{"PING\r\n", "\r\nPING\r\n", "\r\n\r\nPING\r\n", "ping\n"} {
		c := srv.Dial(t)
		if _, err := c.Conn.Write([]byte(inline)); err != nil {
			t.Fatal(err)
		}
		if got := c.Next(); got != "+PONG\r\n" {
			t.Errorf("%q: %q", inline, got)
		}
	}
}

func TestConnectionWithoutDemandedHeaderIsClosed(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Listen, o.ProxyProtocol = append(o.Listen, "unix:"+socketPath(t)), proxy.ProxyRequired
	})
	for _, begin := range []string{
		"*1\r\n$4\r\nPING\r\n", "PROXY TCP4 nonsense\r\nPING\r\n", "PROXY " + strings.Repeat("x", 200), string(proxyproto.SIGV2) + "\x31\x00\x00\x00PING\r\n",
	} {
		c := srv.Dial(t)
		if _, err := c.Conn.Write([]byte(begin)); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(c.Conn); len(b) > 0 {
			t.Errorf("%q was answered %q", begin, b)
		}
	}
	// Unix sockets are for this machine and have no header.
	local := proxytest.Dial(t, "unix:"+srv.Addrs()[1].String())
	local.Script("PING", "+PONG")
	v := decode(t, local.Ask("INFO lockproxy"))
	if !strings.Contains(string(v.Str), "clients_closed_no_handshake:4\r\n") {
		t.Errorf("not counted: %s", v.Str)
	}
}
