package main

import (
	"runtime/debug"
	"testing"

	"go.uber.org/zap"
)

func TestRuntimeStaysWithinTheAvailableMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	available, err := availableMemory()
	if err != nil || available < 64<<20 {
		t.Fatalf("%d, %v", available, err)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitMemory(1<<30, 1<<30, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got < 800<<20 || got > 1<<30 {
		t.Errorf("of a GiB: %d", got)
	}
	limitMemory(1<<30, 1<<28, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got > 333<<20 || got < int64(buffersOf(1<<28))+ownMemory {
		t.Errorf("with 256 MiB for clients: %d", got)
	}
	t.Setenv("GOMEMLIMIT", "5GiB")
	limitMemory(2<<30, 1<<30, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got > 1<<30 {
		t.Errorf("GOMEMLIMIT was overruled by %d", got)
	}
}

func TestGarbageMayBeMoreUnlessTheEnvironmentSays(t *testing.T) {
	was, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(was); debug.SetMemoryLimit(limit) }()
	for gogc, want := range map[string]int{"": garbagePercent, "150": 100} {
		t.Setenv("GOGC", gogc)
		limitMemory(1<<30, 1<<28, zap.NewNop())
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d %%", gogc, got)
		}
	}
}

// Memory is released when clients have gone or the process has grown, not again and again.
func TestMemoryIsReleasedOnce(t *testing.T) {
	const mb = 1 << 20
	r := &release{settled: 60 * mb}
	for i, step := range []struct {
		clients, resident int64
		due               bool
	}{
		{0, 60 * mb, false},
		{10 * mb, 80 * mb, false},
		{100 * mb, 150 * mb, false},
		{90 * mb, 150 * mb, false},
		{20 * mb, 150 * mb, true}, // clients have gone
		{20 * mb, 100 * mb, false},
		{20 * mb, 160 * mb, true}, // garbage
	} {
		own := step.resident - step.clients
		if got := r.due(own); got != step.due {
			t.Errorf("step %d: due %v", i, got)
		}
		if step.due {
			r.settled = own
		}
	}
}
