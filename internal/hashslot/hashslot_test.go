package hashslot

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestSlotsAreThoseOfTheSpecification(t *testing.T) {
	for key, want := range map[string]int{
		"123456789": 0x31C3, "": 0, "foo": 12182, "bar": 5061, "{user1000}.following": Of([]byte("user1000")),
		"foo{}{bar}": 8363, "foo{{bar}}zap": Of([]byte("{bar")), "foo{bar}{zap}": Of([]byte("bar")), "{open": Of([]byte("{open")),
	} {
		if got := Of([]byte(key)); got != want {
			t.Errorf("%q: slot %d, want %d", key, got, want)
		}
	}
}

func TestSlotsAreThoseOfRedis(t *testing.T) {
	r := redistest.Start(t, "--cluster-enabled", "yes")
	for _, key := range []string{"a", "key:1", "{}x", "a{b}c", "a{b", "a}{b}", "\x00\xff", "{}{a}", "x{{}}", "long key with blanks"} {
		if got, want := int64(Of([]byte(key))), r.Do(t, "CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("%q: slot %d, Redis says %v", key, got, want)
		}
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	key := []byte("some{tag}key")
	if n := testing.AllocsPerRun(100, func() { Of(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOf(b *testing.B) {
	key := []byte("user:1000:following")
	for b.Loop() {
		Of(key)
	}
}
