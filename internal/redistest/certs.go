package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Authority signs certificates that are good for an hour, for tests of TLS. Its files are removed when the test ends.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// NewAuthority makes an authority that nothing but the test knows.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := a.sign(t, template, template, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	writePEM(t, a.File(), "CERTIFICATE", der)
	return a
}

// File holds the authority's own certificate, in PEM.
func (a *Authority) File() string { return filepath.Join(a.dir, "ca.crt") }

// Pool has the authority as its only member.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue writes a new certificate for localhost and the loopback addresses, and its key, in PEM. Issuing the same name
// again replaces the files.
func (a *Authority) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	return a.IssueFrom(t, name, time.Now().Add(-time.Minute))
}

// IssueFrom is Issue for a certificate that is valid for an hour from that time on.
func (a *Authority) IssueFrom(t testing.TB, name string, begin time.Time) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	der := a.sign(t, &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: begin, NotAfter: begin.Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", secret)
	return certFile, keyFile
}

// StartTLS runs a redis-server that also serves TLS, at addr, with a certificate of a; clients must show one as well
// unless args say otherwise ("--tls-auth-clients", "no").
func StartTLS(t testing.TB, a *Authority, args ...string) (s *Server, addr string) {
	t.Helper()
	port := Port(t)
	cert, key := a.Issue(t, "redis")
	s = Start(t, append([]string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.File(),
	}, args...)...)
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func (a *Authority) sign(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		t.Fatalf("redistest: sign a certificate: %v", err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return n
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}
