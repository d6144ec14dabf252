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

// Memory is released when clients have gone or the process has grown, not again and again.
func TestMemoryIsReleasedOnce(t *testing.T) {
	const mb = 1 << 20
	r := &release{settled: 60 * mb}
	for i, step := range []struct {
		used, resident int64
		due            bool
	}{
		{0, 60 * mb, false},
		{10 * mb, 80 * mb, false},
		{100 * mb, 150 * mb, false},
		{90 * mb, 150 * mb, false},
		{20 * mb, 150 * mb, true}, // clients have gone
		{20 * mb, 100 * mb, false},
		{20 * mb, 160 * mb, true}, // garbage
	} {
		if got := r.due(step.used, step.resident); got != step.due {
			t.Errorf("step %d: due %v", i, got)
		}
		if step.due {
			r.settled = beside(step.used, step.resident)
		}
	}
}

// A release while clients come and go does not keep the last ones of them.
func TestMemoryIsReleasedBehindTheLastClients(t *testing.T) {
	const mb = 1 << 20
	r := &release{settled: 30 * mb}
	if !r.due(20*mb, 240*mb) {
		t.Fatal("the first clients have gone")
	}
	r.settled = beside(20*mb, 70*mb)
	if r.due(180*mb, 240*mb) {
		t.Error("others have come")
	}
	if !r.due(0, 240*mb) {
		t.Error("the last ones have gone")
	}
}
