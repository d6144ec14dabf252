package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// handshake connects a client to a server over a real socket and reports both sides' errors. The connection stays open
// until the test ends.
func handshake(t *testing.T, server, client *tls.Config) (serverSide, clientSide *tls.Conn, err error) {
	t.Helper()
	peer, nc := redistest.TCPConns(t)
	deadline := time.Now().Add(10 * time.Second)
	_, _ = nc.SetDeadline(deadline), peer.SetDeadline(deadline)
	serverSide, clientSide = tls.Server(peer, server), tls.Client(nc, client)
	served := make(chan error, 1)
	go func() { served <- serverSide.Handshake() }()
	cerr := clientSide.Handshake()
	if cerr != nil {
		nc.Close() // so that the other side does not wait
	}
	return serverSide, clientSide, errors.Join(<-served, cerr)
}

func newStore(t *testing.T, opts Options) *Store {
	t.Helper()
	opts.Logger = zap.NewNop()
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func serverOptions(t *testing.T, a *redistest.Authority, auth string) *ServerOptions {
	t.Helper()
	cert, key := a.Issue(t, "server")
	return &ServerOptions{CertFile: cert, KeyFile: key, CAFile: a.File(), AuthClients: auth}
}

func TestClientCertificatesAreDemandedAsConfigured(t *testing.T) {
	ours, foreign := redistest.NewAuthority(t), redistest.NewAuthority(t)
	good, goodKey := ours.Issue(t, "client")
	bad, badKey := foreign.Issue(t, "client")
	tests := []struct {
		auth, cert, key string
		ok              bool
	}{
		{AuthNo, "", "", true},
		{AuthNo, bad, badKey, true}, // it is not asked for
		{AuthOptional, "", "", true},
		{AuthOptional, good, goodKey, true},
		{AuthOptional, bad, badKey, false},
		{AuthYes, "", "", false},
		{AuthYes, good, goodKey, true},
		{AuthYes, bad, badKey, false},
		{"", "", "", false}, // yes is the default, as in Redis
	}
	for _, test := range tests {
		server := newStore(t, Options{Server: serverOptions(t, ours, test.auth)})
		client := &tls.Config{RootCAs: ours.Pool(), ServerName: "localhost"}
		if test.cert != "" {
			cert, err := tls.LoadX509KeyPair(test.cert, test.key)
			if err != nil {
				t.Fatal(err)
			}
			// Shown whatever authorities the server names, as a client would that wants to get in.
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		if _, _, err := handshake(t, server.Server(), client); (err == nil) != test.ok {
			t.Errorf("auth-clients %q, certificate %q: %v", test.auth, test.cert, err)
		}
	}
}

func TestReloadedCertificateIsShownToNewConnectionsAndOldOnesStay(t *testing.T) {
	a := redistest.NewAuthority(t)
	opts := serverOptions(t, a, AuthNo)
	s := newStore(t, Options{Server: opts})
	client := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}
	oldServer, oldClient, err := handshake(t, s.Server(), client)
	if err != nil {
		t.Fatal(err)
	}
	a.Issue(t, "server") // replaces the files
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if ends := s.Ends(); len(ends) != 1 || time.Until(ends["clients"]) < time.Minute {
		t.Errorf("the certificates end at %v", ends)
	}
	_, newClient, err := handshake(t, s.Server(), client)
	if err != nil {
		t.Fatal(err)
	}
	if serialOf(newClient).Cmp(serialOf(oldClient)) == 0 {
		t.Error("a new connection was shown the old certificate")
	}
	if _, err := oldServer.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := oldClient.Read(make([]byte, 1)); err != nil {
		t.Errorf("the old connection did not survive the reload: %v", err)
	}
}

func serialOf(c *tls.Conn) *big.Int {
	return c.ConnectionState().PeerCertificates[0].SerialNumber
}

func TestBadReloadKeepsEverything(t *testing.T) {
	a := redistest.NewAuthority(t)
	opts := serverOptions(t, a, AuthNo)
	cert, key := a.Issue(t, "client")
	s := newStore(t, Options{Server: opts, Upstream: &UpstreamOptions{CAFile: a.File(), CertFile: cert, KeyFile: key}})
	before := *s.current.Load()

	a.Issue(t, "server") // good files for one side do not help if the other's are bad
	if err := os.WriteFile(key, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := s.Reload()
	if err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("reload: %v, want an error that names %s", err, key)
	}
	if after := *s.current.Load(); after != before {
		t.Error("a failed reload changed what is in use")
	}
	if _, _, err := handshake(t, s.Server(), &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}); err != nil {
		t.Error(err)
	}
}

func TestWithdrawnAuthorityEndsResumptionToo(t *testing.T) {
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	opts := serverOptions(t, a, AuthYes)
	s := newStore(t, Options{Server: opts})
	certFile, keyFile := a.Issue(t, "client")
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	client := &tls.Config{
		RootCAs: a.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{cert},
		ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: tls.VersionTLS12, // 1.2 has its ticket in the handshake
	}
	if _, _, err := handshake(t, s.Server(), client); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other.File())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(opts.CAFile, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake(t, s.Server(), client); err == nil {
		t.Error("a client got in by a session from before its authority was withdrawn")
	}
}

func TestUpstreamIsCheckedAgainstItsAuthorityAndName(t *testing.T) {
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := newStore(t, Options{Server: serverOptions(t, a, AuthYes)}).Server()
	cert, key := a.Issue(t, "proxy")
	tests := []struct {
		opts UpstreamOptions
		want any // nil: accepted
	}{
		{UpstreamOptions{CAFile: a.File(), CertFile: cert, KeyFile: key, ServerName: "localhost"}, nil},
		{UpstreamOptions{CAFile: other.File(), CertFile: cert, KeyFile: key, ServerName: "localhost"}, new(x509.UnknownAuthorityError)},
		{UpstreamOptions{CAFile: a.File(), CertFile: cert, KeyFile: key, ServerName: "elsewhere"}, new(x509.HostnameError)},
	}
	for _, test := range tests {
		_, _, err := handshake(t, server, newStore(t, Options{Upstream: &test.opts}).Upstream())
		if test.want == nil && err != nil || test.want != nil && !errors.As(err, test.want) {
			t.Errorf("%+v: %v, want %T", test.opts, err, test.want)
		}
	}
}

func TestSidesWithoutTLSHaveNoConfig(t *testing.T) {
	s := newStore(t, Options{})
	if s.Server() != nil || s.Upstream() != nil {
		t.Error("a side that is not configured has TLS")
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	a := redistest.NewAuthority(t)
	cert, key := a.Issue(t, "one")
	_, otherKey := a.Issue(t, "two")
	tests := []struct {
		opts Options
		want string
	}{
		{Options{Server: &ServerOptions{CertFile: cert, KeyFile: otherKey, AuthClients: AuthNo}}, otherKey},
		{Options{Server: &ServerOptions{CertFile: cert, KeyFile: key, CAFile: key}}, "no certificate in " + key},
		{Options{Upstream: &UpstreamOptions{CAFile: "absent.crt"}}, "absent.crt"},
		{Options{Upstream: &UpstreamOptions{CertFile: cert, KeyFile: otherKey}}, otherKey},
	}
	for _, test := range tests {
		if _, err := New(test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want an error with %q", err, test.want)
		}
	}
}
