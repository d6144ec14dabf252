package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// clientConfig trusts a and shows a certificate of it.
func clientConfig(t *testing.T, a *redistest.Authority) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(a.Issue(t, "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{cert}}
}

func TestLanesAndPinsSpeakTLS(t *testing.T) {
	a := redistest.NewAuthority(t)
	_, addr := redistest.StartTLS(t, a)
	cfg := clientConfig(t, a)
	u := start(t, Options{Addr: addr, TLS: func() *tls.Config { return cfg }})
	lane := u.Lane(Identity{Proto: 2}, topology.Any, nil, "", Reads)
	defer u.Leave(lane)
	if got := ask(t, lane, "SET", "k", "v"); got != "+OK\r\n" {
		t.Errorf("lane: %q", got)
	}
	pin := u.Acquire(Ask{ID: Identity{Proto: 3}})
	defer pin.Discard()
	if got := ask(t, pin, "GET", "k"); got != "$1\r\nv\r\n" {
		t.Errorf("pin: %q", got)
	}
	nc, err := u.Connect(t.Context(), AnyNode)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got, err := u.dialer.Ask(nc, "PING"); string(got) != "+PONG\r\n" { // this Redis understands nothing else but TLS
		t.Errorf("a connection for a client library: %q, %v", got, err)
	}
}

func TestUpstreamThatCannotBeTrustedIsNotSpokenTo(t *testing.T) {
	_, addr := redistest.StartTLS(t, redistest.NewAuthority(t), "--tls-auth-clients", "no")
	foreign := &tls.Config{RootCAs: redistest.NewAuthority(t).Pool()}
	u := start(t, Options{Addr: addr, TLS: func() *tls.Config { return foreign }})
	var unknown x509.UnknownAuthorityError
	if _, err := u.Connect(t.Context(), AnyNode); !errors.As(err, &unknown) {
		t.Errorf("connect: %v", err)
	}
	lane := u.Lane(Identity{Proto: 2}, topology.Any, nil, "", Reads)
	defer u.Leave(lane)
	// It is refused at once if the lane has tried before.
	if got := ask(t, lane, "SET", "k", "v"); got != "lost sent=false" && got != stream.ErrDown.Error() {
		t.Errorf("lane: %q", got)
	}
}

func TestTLSConfigIsAskedForEachConnection(t *testing.T) {
	a := redistest.NewAuthority(t)
	_, addr := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	current := make(chan *tls.Config, 1)
	current <- &tls.Config{RootCAs: redistest.NewAuthority(t).Pool()}
	opts := Options{Addr: addr, TLS: func() *tls.Config {
		cfg := <-current
		current <- cfg
		return cfg
	}}
	finish(&opts)
	u, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Connect(t.Context(), AnyNode); err == nil {
		t.Fatal("connected with the wrong authority")
	}
	<-current
	current <- &tls.Config{RootCAs: a.Pool()}
	nc, err := u.Connect(t.Context(), AnyNode)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// Bytes that the kernel still has must not reach a Redis whose answer nobody waits for.
func TestGivenUpTLSConnectionIsReset(t *testing.T) {
	peer, nc := redistest.TCPConns(t)
	dial.Abort(tls.Client(nc, &tls.Config{}))
	if err := peer.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other side sees %v", err)
	}
}
