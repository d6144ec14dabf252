package proxy

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestCrewMayBeJoinedWhileItIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c crew
		var done atomic.Int64
		first, second := make(chan struct{}), make(chan struct{})
		c.start(func() { <-first; done.Add(1) })
		over := make(chan struct{})
		go func() { c.wait(); close(over) }()
		synctest.Wait()
		if !c.start(func() { <-second; done.Add(1) }) {
			t.Error("refused though one is at work")
		}
		close(first)
		synctest.Wait()
		select {
		case <-over:
			t.Error("over though one is at work")
		default:
		}
		close(second)
		<-over
		if done.Load() != 2 || c.start(func() { t.Error("ran") }) {
			t.Errorf("%d done, or joined after the end", done.Load())
		}
	})
}

func TestCrewOfNobodyIsOver(t *testing.T) {
	var c crew
	c.wait()
	if c.start(func() { t.Error("ran") }) {
		t.Error("joined after the end")
	}
}

func TestServerThatWaitsForTheLastClientTakesNoMore(t *testing.T) {
	srv := &Server{env: &env{}, conns: map[client]struct{}{}}
	first := &conn{sess: &Session{}}
	if !srv.enlist(first) {
		t.Error("refused")
	}
	empty := srv.whenEmpty()
	if srv.enlist(&conn{sess: &Session{}}) {
		t.Error("accepted while the end of the last one is waited for")
	}
	srv.forget(first)
	<-empty
}
