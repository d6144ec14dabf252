package main

import (
	"runtime/debug"
	"testing"

	"go.uber.org/zap"
)

func TestMemoryLimitIsASizeOrAShare(t *testing.T) {
	tests := []struct {
		text string
		want int // of a GiB; -1: an error
	}{
		{"512mb", 512 << 20},
		{"2g", 2e9},
		{"50%", 1 << 29},
		{"100%", 1 << 30},
		{"1%", int(leastMemory)},
		{"0%", -1},
		{"101%", -1},
		{"-1%", -1},
		{"1.5%", -1},
		{"50 %", -1},
		{"%", -1},
		{"", -1},
		{"1.5gb", -1},
		{"-1", -1},
	}
	for _, test := range tests {
		var m MemoryLimit
		err := m.UnmarshalText([]byte(test.text))
		if (err != nil) != (test.want < 0) {
			t.Errorf("%q: %v", test.text, err)
		}
		if err != nil {
			continue
		}
		if got := m.of(1 << 30); got/1000 != test.want/1000 && test.want-got > 100 {
			t.Errorf("%q of a GiB is %d, want %d", test.text, got, test.want)
		}
		var again MemoryLimit
		if err := again.UnmarshalText([]byte(m.String())); err != nil || again != m {
			t.Errorf("%q is written as %q, which reads as %v, %v", test.text, m, again, err)
		}
	}
}

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
