package upstream

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestEvictionPolicyIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"locks can be evicted", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, 1},
		{"locks can be evicted because they have a TTL", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, 1},
		{"nothing is evicted", []string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}, 0},
		{"there is no limit", []string{"--maxmemory-policy", "allkeys-lru"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			u := start(t, Options{Addr: redistest.Start(t, c.args...).Addr(), Logger: zap.New(core)})
			redistest.Eventually(t, 10*time.Second, "redis has been looked at", func() bool { ok, _ := u.Ready(); return ok })
			if got := logs.FilterMessageSnippet("evict").Len(); got != c.want {
				t.Errorf("%d warnings, want %d", got, c.want)
			}
		})
	}
}
