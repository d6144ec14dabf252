package locktest

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
)

// CheckSession checks that a session keeps the part of the contract that the lock engine relies on: Do locks the
// session, AfterUnlock runs on the same goroutine when the session is not locked any more, and nothing runs in a
// session that has ended. end ends the session.
func CheckSession(t *testing.T, s contract.Session, end func()) {
	t.Helper()
	steps := make(chan string, 10)
	if !s.Do(func() {
		s.AfterUnlock(func() {
			steps <- "after"
			if !s.Do(func() { steps <- "inside" }) { // blocks for ever if the session is locked
				steps <- "ended"
			}
		})
		steps <- "do"
	}) {
		t.Fatal("Do reports that the session has ended")
	}
	for _, want := range []string{"do", "after", "inside"} {
		select {
		case got := <-steps:
			if got != want {
				t.Fatalf("step %q, want %q", got, want)
			}
		default: // on another goroutine, or not at all
			t.Fatalf("%q has not run when Do returns", want)
		}
	}
	locked, done := make(chan struct{}), make(chan struct{})
	go s.Do(func() {
		close(locked)
		<-done
	})
	<-locked
	second := make(chan struct{})
	go func() {
		s.Do(func() {})
		close(second)
	}()
	select {
	case <-second:
		t.Fatal("two functions run in the session at once")
	case <-time.After(10 * time.Millisecond):
	}
	close(done)
	<-second
	end()
	if s.Do(func() { t.Error("a function runs in a session that has ended") }) {
		t.Error("Do reports that an ended session is alive")
	}
}
