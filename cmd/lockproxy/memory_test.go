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
	limitMemory(1<<30, 1<<29, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got < 900<<20 || got > 1<<30 {
		t.Errorf("of a GiB: %d", got)
	}
	limitMemory(1<<30, 1<<28, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got != 640<<20 {
		t.Errorf("with 256 MiB for clients: %d", got)
	}
	t.Setenv("GOMEMLIMIT", "5GiB")
	limitMemory(2<<30, 1<<30, zap.NewNop())
	if got := debug.SetMemoryLimit(-1); got > 1<<30 {
		t.Errorf("GOMEMLIMIT was overruled by %d", got)
	}
}
