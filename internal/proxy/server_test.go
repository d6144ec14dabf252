package proxy

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
)

func TestServerThatWaitsForTheLastClientTakesNoMore(t *testing.T) {
	t.Parallel()
	srv := &Server{shared: &session.Proxy{}, conns: map[engine.Client]*session.Session{}}
	first := &nobody{}
	if !srv.enlist(first, &session.Session{}) {
		t.Error("refused")
	}
	empty := srv.whenEmpty()
	second := &nobody{}
	if !srv.enlist(second, &session.Session{}) {
		t.Error("refused before the last one has gone")
	}
	srv.forget(first)
	srv.forget(second)
	<-empty
	if srv.enlist(&nobody{}, &session.Session{}) {
		t.Error("accepted after the last one has gone")
	}
}

// nobody is a client that nothing is done with.
type nobody struct{ engine.Client }
