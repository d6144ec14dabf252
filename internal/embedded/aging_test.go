package embedded

import (
	"testing"
	"time"
)

func TestKeyVanishesWhileNobodyAsks(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.redis.Set("k", "v"); err != nil {
		t.Fatal(err)
	}
	s.redis.SetTTL("k", 20*time.Millisecond)
	deadline := time.After(10 * time.Second)
	ask := time.NewTicker(time.Millisecond)
	defer ask.Stop()
	for s.redis.Exists("k") { // no command, so only the ticker can end it
		select {
		case <-deadline:
			t.Fatal("the key is still there")
		case <-ask.C:
		}
	}
}
