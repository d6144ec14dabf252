package proxy

import (
	"testing"

	"lockproxy/internal/proxy/engine"
)

func TestServerThatWaitsForTheLastClientTakesNoMore(t *testing.T) {
	srv := &Server{env: &env{}, conns: map[engine.Client]*Session{}}
	first := &hand{}
	if !srv.enlist(first, &Session{}) {
		t.Error("refused")
	}
	empty := srv.whenEmpty()
	if srv.enlist(&hand{}, &Session{}) {
		t.Error("accepted while the end of the last one is waited for")
	}
	srv.forget(first)
	<-empty
}
