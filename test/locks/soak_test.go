//go:build soak

package locks

import (
	"os"
	"testing"
	"time"
)

// TestSoakLocks repeats the chaos tests, each round with a seed of its own, until LOCKPROXY_SOAK_TIME has passed.
// LOCKPROXY_SEED repeats one round only.
func TestSoakLocks(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("LOCKPROXY_SOAK_TIME"))
	if err != nil {
		t.Fatalf("LOCKPROXY_SOAK_TIME: %v", err)
	}
	const round = 3 * time.Minute
	for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); {
		set := settings{seed: seedOf(t), workers: 8, keys: 4, lease: time.Second}
		t.Run("relays", func(t *testing.T) { runChaos(t, set, min(round, time.Until(end))) })
		set.namespaces = true
		t.Run("namespaces", func(t *testing.T) { runChaos(t, set, min(round, time.Until(end))) })
		set.namespaces, set.volatile = false, true
		t.Run("volatile", func(t *testing.T) { runChaos(t, set, min(round, time.Until(end))/3) })
		t.Run("damage", func(t *testing.T) { runDamage(t, set.seed, max(min(round, time.Until(end))/3, 5*time.Second)) })
		if os.Getenv("LOCKPROXY_SEED") != "" {
			return
		}
	}
}
