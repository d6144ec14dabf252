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

const mb = 1 << 20

// Memory is released when clients have gone or the process has grown, not again and again.
func TestMemoryIsReleasedOnce(t *testing.T) {
	r := &release{settled: 60 * mb}
	var allocated int64
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
		allocated += 100 * mb // it works all the time
		u := usage{step.clients, step.resident, allocated}
		if got := r.due(u); got != step.due {
			t.Errorf("step %d: due %v", i, got)
		}
		if step.due {
			r.done(u)
		}
	}
}

// A process that works little releases what a crowd has left, once.
func TestMemoryIsReleasedWhenItIsQuiet(t *testing.T) {
	r := &release{settled: 20 * mb}
	for i, step := range []struct {
		clients, resident, allocated int64
		due                          bool
	}{
		{40 * mb, 70 * mb, 100 * mb, false}, // a crowd has come
		{0, 50 * mb, 110 * mb, false},       // it goes
		{0, 50 * mb, 111 * mb, true},        // it has gone
		{0, 24 * mb, 112 * mb, false},
		{0, 24 * mb, 113 * mb, false},
		{0, 24 * mb, 200 * mb, false}, // it works, and what it used before is garbage
		{0, 24 * mb, 201 * mb, false},
		{0, 24 * mb, 202 * mb, true},
		{0, 24 * mb, 203 * mb, false},
		{0, 24 * mb, 203 * mb, false},
		{0, 24 * mb, 203 * mb, false},
		{0, 24 * mb, 203 * mb, false},
		{0, 24 * mb, 203 * mb, false},
		{0, 24 * mb, 203 * mb, false},
	} {
		u := usage{step.clients, step.resident, step.allocated}
		if got := r.due(u); got != step.due {
			t.Errorf("step %d: due %v", i, got)
		}
		if step.due {
			r.done(usage{0, 22 * mb, step.allocated}) // what is left
		}
	}
}

// A release while clients come and go does not keep the last ones of them.
func TestMemoryIsReleasedBehindTheLastClients(t *testing.T) {
	r := &release{settled: 30 * mb}
	if !r.due(usage{20 * mb, 240 * mb, 0}) {
		t.Fatal("the first clients have gone")
	}
	r.done(usage{20 * mb, 70 * mb, 0})
	if r.due(usage{180 * mb, 240 * mb, 200 * mb}) {
		t.Error("others have come")
	}
	if !r.due(usage{0, 240 * mb, 200 * mb}) {
		t.Error("the last ones have gone")
	}
}
