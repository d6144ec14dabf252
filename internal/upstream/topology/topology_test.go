package topology

import (
	"testing"
)

func TestOneServerServesAllKeysAtOneAddress(t *testing.T) {
	for addr, want := range map[string][2]string{
		"redis.example:6379": {"tcp", "redis.example:6379"},
		"unix:/run/redis":    {"unix", "/run/redis"},
	} {
		a, err := ParseAddress(addr)
		if err != nil {
			t.Fatal(err)
		}
		place, err := NewSingle(a).Resolve(Any)
		if place.Network != want[0] || place.Address != want[1] || place.Left() || err != nil {
			t.Errorf("%s is at %+v (%v), want %v", addr, place, err, want)
		}
	}
}
