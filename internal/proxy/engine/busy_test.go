package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBusyTimeIsEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Meter
		for i := range 100 * sample {
			time.Sleep(3 * time.Millisecond) // the loop waits
			m.Begin()
			time.Sleep(time.Duration(1+i%2) * time.Millisecond) // rounds of two kinds
			m.End()
		}
		if got, want := m.Time(), 150*sample*time.Millisecond; got != want {
			t.Errorf("busy for %s, want %s", got, want)
		}
	})
}

func BenchmarkRound(b *testing.B) {
	var m Meter
	for b.Loop() {
		m.Begin()
		m.End()
	}
}
