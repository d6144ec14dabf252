package proxy

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// countedKey is a private key that counts its use at the same time.
type countedKey struct {
	*ecdsa.PrivateKey
	mu        sync.Mutex
	now, most int
}

func (k *countedKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.add(1)
	defer k.add(-1)
	time.Sleep(2 * time.Millisecond) // the handshakes that may sign now do it meanwhile
	return k.PrivateKey.Sign(r, digest, opts)
}

func (k *countedKey) add(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now += n
	k.most = max(k.most, k.now)
}

func countedConfig(t *testing.T) (*countedKey, *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	k := &countedKey{PrivateKey: private}
	return k, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}}}
}

// socketPair are the two ends of a connection.
func socketPair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	server, client = redistest.Conns(t, "tcp")
	_, _ = client.SetDeadline(time.Now().Add(patience)), server.SetDeadline(time.Now().Add(patience))
	return server, client
}

func TestFewHandshakesComputeAtATime(t *testing.T) {
	t.Parallel()
	k, cfg := countedConfig(t)
	turns := make(admission.Turns, 2)
	var wg sync.WaitGroup
	for range 16 {
		server, client := socketPair(t)
		wg.Go(func() {
			if _, err := acceptTLS(turns, server, nil, time.Now().Add(patience), cfg); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if k.most > cap(turns) {
		t.Errorf("%d handshakes signed at a time, of %d that may", k.most, cap(turns))
	}
	if len(turns) != 0 {
		t.Errorf("%d turns are still taken", len(turns))
	}
}

// Some of the clients send nothing, others no answer to the proxy's part.
func TestSlowClientsTakeNoTurn(t *testing.T) {
	t.Parallel()
	_, cfg := countedConfig(t)
	turns := make(admission.Turns, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range 8 {
		server, client := socketPair(t)
		wg.Go(func() { _, _ = acceptTLS(turns, server, nil, time.Now().Add(patience), cfg) })
		defer client.Close()
		if i%2 == 0 {
			continue
		}
		release := make(chan struct{})
		defer close(release)
		helloOnly := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { <-release; return nil }}
		go func() { _ = tls.Client(client, helloOnly).Handshake() }()
	}
	server, client := socketPair(t)
	wg.Go(func() {
		secure, err := acceptTLS(turns, server, []byte("\x16"), time.Now().Add(patience), cfg)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(secure, "hello")
	})
	secure := tls.Client(&skipping{Conn: client}, &tls.Config{InsecureSkipVerify: true})
	got := make([]byte, 5)
	if _, err := io.ReadFull(secure, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// skipping sends all bytes but the first one, which the server has already.
type skipping struct {
	net.Conn
	begun bool
}

func (s *skipping) Write(b []byte) (int, error) {
	if s.begun {
		return s.Conn.Write(b)
	}
	s.begun = true
	n, err := s.Conn.Write(b[1:])
	return n + 1, err
}

func TestHandshakeWithoutATurnFails(t *testing.T) {
	t.Parallel()
	_, cfg := countedConfig(t)
	turns := make(admission.Turns, 1)
	turns <- struct{}{}
	server, _ := socketPair(t)
	if _, err := acceptTLS(turns, server, nil, time.Now(), cfg); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if len(turns) != 1 {
		t.Error("released a turn that it never had")
	}
}

// delayed is a connection whose writes are held back while they are not sent on.
type delayed struct {
	net.Conn
	held *bytes.Buffer // nil: they are sent on
}

func (d *delayed) Write(b []byte) (int, error) {
	if d.held != nil {
		return d.held.Write(b)
	}
	return d.Conn.Write(b)
}

func TestRecordsThatHaveNotBeenReadAreHeld(t *testing.T) {
	t.Parallel()
	_, cfg := countedConfig(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server, client := socketPair(t)
		d := &delayed{Conn: client}
		held := new(bytes.Buffer)
		own := tls.Client(d, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, DynamicRecordSizingDisabled: true, VerifyConnection: func(tls.ConnectionState) error {
			if version == tls.VersionTLS13 { // what ends the handshake comes with the first bytes behind it
				d.held = held
			}
			return nil
		}})
		done := make(chan *tlsConn)
		go func() {
			c, err := acceptTLS(make(admission.Turns, 1), server, nil, time.Now().Add(patience), cfg)
			if err != nil {
				t.Error(err)
			}
			done <- c
		}()
		if err := own.Handshake(); err != nil {
			t.Fatal(err)
		}
		var c *tlsConn
		for _, step := range []struct {
			what    string
			records []string
			begun   int // bytes of the last record that come with the others; 0: all
			more    []bool
		}{
			{"one record", []string{"a"}, 0, []bool{false}},
			{"two records", []string{"a", "b"}, 0, []bool{true, false}},
			{"many bytes", []string{strings.Repeat("a", 16<<10)}, 0, []bool{false}},
			{"a record and a part of another one", []string{"a", "b"}, 20, []bool{true, false}},
			{"a record and the start of the head of another one", []string{"a", "b"}, 2, []bool{true, false}},
			{"three records", []string{"a", strings.Repeat("b", 5000), "c"}, 0, []bool{true, true, false}},
		} {
			d.held = held
			end := 0
			for _, r := range step.records {
				end = held.Len()
				if _, err := io.WriteString(own, r); err != nil {
					t.Fatal(err)
				}
			}
			if end += step.begun; step.begun == 0 {
				end = held.Len()
			}
			if _, err := client.Write(held.Next(end)); err != nil {
				t.Fatal(err)
			}
			if c == nil {
				c = <-done
			}
			for i, want := range step.records {
				if i == len(step.records)-1 {
					if _, err := held.WriteTo(client); err != nil {
						t.Fatal(err)
					}
				}
				buf := make([]byte, 16<<10)
				n, err := c.Read(buf)
				if err != nil || string(buf[:n]) != want {
					t.Fatalf("%x: %s: read %d bytes, %v", version, step.what, n, err)
				}
				if more := c.Holds() || netio.Unread(server); more != step.more[i] {
					t.Errorf("%x: %s: more behind record %d: %v", version, step.what, i, more)
				}
			}
		}
	}
}
