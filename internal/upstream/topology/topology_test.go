package topology

import (
	"testing"

	"lockproxy/internal/upstream/address"
)

func TestOneServerIsAtOneAddress(t *testing.T) {
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
		network, address, err := s.Resolve(t.Context(), Any)
		if network != want[0] || address != want[1] || err != nil {
			t.Errorf("%s is at %s %s (%v), want %v", addr, network, address, err, want)
		}
	}
	a, err := address.Parse("cluster://h:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewSingle(a); err == nil {
		t.Error("a cluster is one server")
	}
}
