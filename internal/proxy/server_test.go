package proxy

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

func TestServerThatWaitsForTheLastClientTakesNoMore(t *testing.T) {
	t.Parallel()
	srv := &Server{shared: &session.Proxy{}, conns: map[engine.Client]*session.Session{}}
	first := &nobody{}
	if !srv.enlist(&pendingConn{}, first, &session.Session{}) {
		t.Error("refused")
	}
	empty := srv.whenEmpty()
	second := &nobody{}
	if !srv.enlist(&pendingConn{}, second, &session.Session{}) {
		t.Error("refused before the last one has gone")
	}
	srv.forget(first)
	srv.forget(second)
	<-empty
	if srv.enlist(&pendingConn{}, &nobody{}, &session.Session{}) {
		t.Error("accepted after the last one has gone")
	}
}

// CLIENT KILL ends a client before a session has it, or leaves it to the session: each client is ended by one of them.
func TestAClientIsKilledOrServed(t *testing.T) {
	t.Parallel()
	srv := &Server{shared: &session.Proxy{Source: metrics.Source{Upstream: &upstream.Upstream{}}}, conns: map[engine.Client]*session.Session{}}
	all := func(*clients.Info) bool { return true }
	pending := func() (a *pendingConn, open func() bool) {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		a = &pendingConn{Conn: near, server: srv}
		srv.shared.Clients.Put(a.ID, a)
		return a, func() bool {
			_ = far.SetReadDeadline(time.Unix(1, 0))
			_, err := far.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	killed, open := pending()
	if killed.KillIf(all); open() || srv.enlist(killed, &nobody{}, &session.Session{}) {
		t.Error("killed, and served all the same")
	}
	served, open := pending()
	if !srv.enlist(served, &nobody{}, &session.Session{}) {
		t.Error("refused")
	}
	if served.KillIf(all); !open() {
		t.Error("a client of a session was ended")
	}
}

// nobody is a client that nothing is done with.
type nobody struct{ engine.Client }
