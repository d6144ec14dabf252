package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"lockproxy/internal/redistest"
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
	lane := u.Lane(Identity{Proto: 2}, nil)
	defer u.Leave(lane)
	if got := ask(t, lane, "SET", "k", "v"); got != "+OK\r\n" {
		t.Errorf("lane: %q", got)
	}
	pin := u.Acquire(Identity{Proto: 3})
	defer pin.Discard()
	if got := ask(t, pin, "GET", "k"); got != "$1\r\nv\r\n" {
		t.Errorf("pin: %q", got)
	}
	nc, err := u.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, ok := nc.(*tls.Conn); !ok {
		t.Errorf("a connection for a client library is a %T", nc)
	}
}

func TestUpstreamThatCannotBeTrustedIsNotSpokenTo(t *testing.T) {
	_, addr := redistest.StartTLS(t, redistest.NewAuthority(t), "--tls-auth-clients", "no")
	foreign := &tls.Config{RootCAs: redistest.NewAuthority(t).Pool()}
	u := start(t, Options{Addr: addr, TLS: func() *tls.Config { return foreign }})
	var unknown x509.UnknownAuthorityError
	if _, err := u.Connect(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("connect: %v", err)
	}
	lane := u.Lane(Identity{Proto: 2}, nil)
	defer u.Leave(lane)
	if got := ask(t, lane, "SET", "k", "v"); got != "lost sent=false" {
		t.Errorf("lane: %q", got)
	}
}

func TestTLSConfigIsAskedForEachConnection(t *testing.T) {
	a := redistest.NewAuthority(t)
	_, addr := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	current := make(chan *tls.Config, 1)
	current <- &tls.Config{RootCAs: redistest.NewAuthority(t).Pool()}
	u, err := New(Options{Addr: addr, TLS: func() *tls.Config {
		cfg := <-current
		current <- cfg
		return cfg
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Connect(t.Context()); err == nil {
		t.Fatal("connected with the wrong authority")
	}
	<-current
	current <- &tls.Config{RootCAs: a.Pool()}
	nc, err := u.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// A server that stops reading holds up whoever closes TLS in due form.
func TestClosingTLSDoesNotWaitForRedis(t *testing.T) {
	a := redistest.NewAuthority(t)
	redis, addr := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	u := start(t, Options{Addr: addr, TLS: func() *tls.Config { return &tls.Config{RootCAs: a.Pool()} }})
	pin := u.Acquire(Identity{Proto: 2})
	if got := ask(t, pin, "PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	redis.Pause()
	defer redis.Continue()
	to := newAnswers()
	big := make([]byte, 64<<20)
	if err := pin.Append(big, to, 1); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	pin.Discard()
	if got := to.next(t); got != "lost sent=true" {
		t.Error(got)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("closed after %s", took)
	}
}
