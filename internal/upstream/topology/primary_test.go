package topology

import (
	"errors"
	"testing"
)

func TestAPrimaryMoves(t *testing.T) {
	p := NewPrimary()
	if _, err := p.Resolve("p"); !errors.Is(err, ErrUnknown) || p.Address() != "" {
		t.Fatalf("before the first view: %v", err)
	}
	if !p.Publish("a:1") || p.Publish("a:1") {
		t.Error("only the first view is a move")
	}
	old, err := p.Resolve("p")
	if err != nil || old.Address != "a:1" || !old.Primary || old.Left() {
		t.Fatalf("%+v, %v", old, err)
	}
	told, withdrawn := make(chan struct{}), make(chan struct{})
	old.OnLeft(func() { close(told) })
	old.OnLeft(func() { close(withdrawn) })()
	if !p.Publish("b:1") {
		t.Error("another address is no move")
	}
	<-told
	select {
	case <-withdrawn:
		t.Error("a withdrawn function is called")
	default:
	}
	if now, _ := p.Resolve("p"); !old.Left() || now.Left() || now.Address != "b:1" {
		t.Errorf("after the move: %+v, left %t", now, old.Left())
	}
}
