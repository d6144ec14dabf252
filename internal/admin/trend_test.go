package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

func TestCountersAreRatesAndGaugesAreNot(t *testing.T) {
	var lines Trend
	at := time.Unix(1000, 0)
	for n, s := range []status.Stats{
		{Commands: map[string]int64{"shared": 100, "lock": 5}, Lost: map[string]int64{"expired": 10, "gone": 1}, Clients: 3},
		{Commands: map[string]int64{"shared": 120, "lock": 10}, Lost: map[string]int64{"expired": 99, "gone": 4}, Clients: 7},
		{Commands: map[string]int64{"shared": 120, "lock": 10}, Lost: map[string]int64{"expired": 99, "gone": 4}, Clients: 2},
	} {
		lines.Add(at.Add(time.Duration(n)*Period), &s)
	}
	got := lines.Lines()
	want := map[string][]float64{"commands": {12.5, 0}, "locks_lost": {1.5, 0}, "clients": {7, 2}}
	for name, line := range want {
		if diff := cmp.Diff(line, got[name]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if len(got) != len(series) {
		t.Errorf("%d lines, want %d", len(got), len(series))
	}
}

func TestTheOldestSamplesGo(t *testing.T) {
	var lines Trend
	if got := lines.Lines()["clients"]; len(got) != 0 {
		t.Errorf("before the first sample: %v", got)
	}
	for n := range int64(kept + 50) {
		lines.Add(time.Unix(n, 0), &status.Stats{Clients: n})
	}
	got := lines.Lines()["clients"]
	if len(got) != kept || got[0] != 50 || got[kept-1] != kept+49 {
		t.Errorf("%d values from %v to %v", len(got), got[0], got[len(got)-1])
	}
}
