package stream

import "testing"

func TestALeavingStreamTakesNoMoreRequests(t *testing.T) {
	s := New()
	to := &recorder{keeps: true, log: new([]string)}
	s.Open()
	if err := s.Append([]byte("a"), to, 1, 1); err != nil {
		t.Fatal(err)
	}
	if got := string(s.Take(nil)); got != "a" {
		t.Fatalf("took %q", got)
	}
	if err := s.Append([]byte("b"), to, 2, 1); err != nil {
		t.Fatal(err)
	}
	if s.Leave() {
		t.Error("a request without a reply has settled")
	}
	if b := s.Take(nil); b != nil {
		t.Errorf("took %q from a stream that leaves", b)
	}
	if err := s.Feed([]byte("+OK\r\n")); err != nil {
		t.Fatal(err)
	}
	if !s.Leave() {
		t.Error("all requests that were taken are answered")
	}
	s.Reconnect(nil)
	s.Open()
	if got := string(s.Take(nil)); got != "b" {
		t.Errorf("the next connection takes %q, want b", got)
	}
}
