package topology

import (
	"testing"

	"lockproxy/internal/upstream/address"
)

func TestOneServerServesAllKeysAtOneAddress(t *testing.T) {
	for addr, want := range map[string][2]string{
		"redis.example:6379": {"tcp", "redis.example:6379"},
		"unix:/run/redis":    {"unix", "/run/redis"},
	} {
		a, err := address.Parse(addr)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSingle(a)
		if err != nil {
			t.Fatal(err)
		}
		if s.For(nil) != s.For([]byte("k")) || s.For([]byte("a")) != s.For([]byte("b")) {
			t.Errorf("%s: keys have different servers", addr)
		}
		network, address, err := s.Resolve(t.Context(), s.For(nil))
		if network != want[0] || address != want[1] || err != nil {
			t.Errorf("%s is at %s %s (%v), want %v", addr, network, address, err, want)
		}
	}
	if _, err := NewSingle(address.Address{Kind: address.Cluster}); err == nil {
		t.Error("a cluster is taken for one server")
	}
}
