package blackbox

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/certs"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// withAuthority has a proxy listen for TLS, too, with a certificate of a, and demand certificates of a.
func withAuthority(t *testing.T, a *redistest.Authority) func(*proxy.Options) {
	t.Helper()
	cert, key := a.Issue(t, "proxy")
	store, err := certs.New(certs.Options{
		Server: &certs.ServerOptions{CertFile: cert, KeyFile: key, CAFile: a.File(), AuthClients: certs.AuthYes}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *proxy.Options) { o.Listen, o.TLS = append(o.Listen, "tls:127.0.0.1:0"), store.Server() }
}

func TestClientsSpeakTLSBesidePlainOnes(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS)
	secure, plain := dialTLS(t, srv), srv.Dial(t)
	secure.Script("LOCK k", ":")
	plain.Script("TRYLOCK k", "$-1")
	plain.Raw(proxytest.Inline("LOCK k WAIT 10000"))
	secure.Script("UNLOCK k", ":1")
	plain.Gets(":")
	plain.Script("UNLOCK k", ":1")
	secure.Ask("SUBSCRIBE news")
	plain.Ask("PUBLISH news hello")
	secure.Gets("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n")
}

func TestClientCertificateDecidesWhoGetsIn(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	srv := proxytest.Start(t, redistest.Start(t), withAuthority(t, a))
	stranger := tls.Client(proxytest.Dial(t, tlsAddr(srv)).Conn, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"})
	_, err := stranger.Write(resp.AppendCommand(nil, "PING"))
	if err == nil {
		_, err = stranger.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	plain := proxytest.Dial(t, tlsAddr(srv))
	plain.Raw(proxytest.Inline("PING"))
	if b, _ := io.ReadAll(plain.Conn); strings.Contains(string(b), "PONG") {
		t.Errorf("without TLS: %q", b)
	}
	proxytest.WaitFor(t, "the failures to be counted", func() bool {
		return infoOf(t, srv.Addr(), "clients_closed_no_handshake") == "2"
	})
}

func TestClientLibrariesConnectByTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	srv := proxytest.Start(t, redistest.Start(t), withAuthority(t, a))
	certFile, keyFile := a.Issue(t, "client")
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: tlsAddr(srv), TLSConfig: &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{cert}}})
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if fence, err := client.Do(t.Context(), "LOCK", "l").Int64(); err != nil || fence < 1 {
		t.Errorf("LOCK: %d, %v", fence, err)
	}

	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skipf("no redis-cli: %v", err)
	}
	_, port, _ := net.SplitHostPort(tlsAddr(srv))
	out, err := exec.CommandContext(t.Context(), cli, "--tls", "--cacert", a.File(), "--cert", certFile, "--key", keyFile, "-p", port, "GET", "k").CombinedOutput()
	if err != nil || string(out) != "v\n" {
		t.Errorf("redis-cli --tls: %q, %v", out, err)
	}
}

// Lanes, pins and the lock engine's own client all connect to a Redis that serves nothing but TLS.
func TestEverythingReachesAnUpstreamByTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	redisServer, addr := redistest.StartTLS(t, a)
	cert, key := a.Issue(t, "lockproxy")
	store, err := certs.New(certs.Options{Upstream: &certs.UpstreamOptions{CAFile: a.File(), CertFile: cert, KeyFile: key}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	srv := proxytest.Start(t, redisServer, func(o *proxy.Options) { o.Upstream.Addr, o.Upstream.TLS = addr, store.Upstream })
	holder, waiter := srv.Dial(t), srv.Dial(t)
	holder.Script("MULTI", "+OK")
	holder.Ask("DISCARD")
	holder.Ask("LOCK k")
	waiter.Raw(proxytest.Inline("LOCK k WAIT 10000"))
	// The engine's subscription is made by its own client.
	proxytest.WaitFor(t, "the waiter to subscribe", func() bool {
		channels, _ := redisServer.Do(t, "PUBSUB", "CHANNELS", "redisson_lock__channel:*").([]any)
		return len(channels) == 1
	})
	holder.Ask("UNLOCK k")
	waiter.Gets(":")
	waiter.Ask("UNLOCK k")

	// The end of a client that waits in Redis reaches it too.
	gone := srv.Dial(t)
	gone.Raw(proxytest.Inline("BLPOP l 0", "LOCK k"))
	proxytest.AwaitBlocked(t, 1, redisServer)
	_ = gone.Conn.Close()
	proxytest.AwaitBlocked(t, 0, redisServer)
	redisServer.Do(t, "RPUSH", "l", "x")
	if got := redisServer.Do(t, "LPOP", "l"); got != "x" {
		t.Errorf("the list had %v", got)
	}
}

// A listener without a certificate must not serve in the clear.
func TestTLSAddressNeedsACertificate(t *testing.T) {
	t.Parallel()
	opts := proxy.Options{Listen: []string{"tls:127.0.0.1:0"}, Upstream: upstream.Options{Addr: "127.0.0.1:1"}}
	proxytest.Finish(&opts)
	_, err := proxy.New(opts)
	if err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("%v", err)
	}
}

// recorded keeps the bytes that are read.
type recorded struct {
	net.Conn
	bytes []byte
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.bytes = append(r.bytes, b[:n]...)
	return n, err
}

// A connection ends with the word of TLS that no more follows: without it, clients take the end for an attack.
func TestATLSConnectionEndsInOrder(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS)
	for _, last := range []string{"GET k\r\n", "QUIT\r\n"} {
		nc, err := net.Dial("tcp", tlsAddr(srv))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		under := &recorded{Conn: nc}
		c := tls.Client(under, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) // the type of an alert can be seen
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(last))
		_ = c.CloseWrite()
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		const alert, header = 21, 5
		kind := byte(0)
		for b := under.bytes; len(b) > header; b = b[header+(int(b[3])<<8|int(b[4])):] {
			kind = b[0]
		}
		if kind != alert {
			t.Errorf("%q: the last record is of type %d", last, kind)
		}
	}
}

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
