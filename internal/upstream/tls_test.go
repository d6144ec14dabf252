package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

func TestUpstreamThatCannotBeTrustedIsNotSpokenTo(t *testing.T) {
	_, addr := redistest.StartTLS(t, redistest.NewAuthority(t), "--tls-auth-clients", "no")
	foreign := &tls.Config{RootCAs: redistest.NewAuthority(t).Pool()}
	u := start(t, Options{Addr: addr, TLS: func() *tls.Config { return foreign }})
	var unknown x509.UnknownAuthorityError
	if _, err := u.Connect(t.Context(), topology.Any); !errors.As(err, &unknown) {
		t.Errorf("connect: %v", err)
	}
	lane := u.Lanes.Lane(Identity{Proto: 2}, topology.Any, nil, "", Reads)
	defer u.Lanes.Leave(lane)
	outcome := make(lost, 1)
	if lane.Append(resp.AppendCommand(nil, "SET", "k", "v"), outcome, 0, 1) == nil && <-outcome {
		t.Error("the lane has sent a command")
	}
}

// lost is told of a request without a reply whether it was sent.
type lost chan bool

func (lost) Replies(uint64, []byte, int, bool) { panic("no reply is due") }
func (l lost) Lost(_ uint64, _ int, sent bool) { l <- sent }
func (lost) Flush()                            {}
func (lost) Keeps(bool) bool                   { return false }

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
	if _, err := u.Connect(t.Context(), topology.Any); err == nil {
		t.Fatal("connected with the wrong authority")
	}
	<-current
	current <- &tls.Config{RootCAs: a.Pool()}
	nc, err := u.Connect(t.Context(), topology.Any)
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
