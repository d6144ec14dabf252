package admin

import (
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

// This file remembers some numbers of the proxy for a few minutes, for the lines on the status page.
//
// Goroutines: none. The caller adds a sample at each Period.

// Period is the time between two samples.
const Period = 2 * time.Second

// kept is how many samples are shown: five minutes.
const kept = 150

// series are the numbers that are remembered.
var series = [...]struct {
	name string
	rate bool // it is a counter: what it has grown by per second is shown
	of   func(s *status.Stats) int64
}{
	{"commands", true, func(s *status.Stats) int64 { return metrics.Total(s.Commands) }},
	{"grants", true, func(s *status.Stats) int64 { return count(s.Waits) }},
	{"waits_without_lock", true, func(s *status.Stats) int64 { return count(s.Queued) - int64(s.Queued["granted"].Count) }},
	{"locks_lost", true, (*status.Stats).Losses},
	{"refused", true, func(s *status.Stats) int64 { return metrics.Total(s.Refused) }},
	{"clients", false, func(s *status.Stats) int64 { return s.Clients }},
	{"locks_held", false, func(s *status.Stats) int64 { return int64(s.Held) }},
	{"lock_waiters", false, func(s *status.Stats) int64 { return int64(s.Waiting) }},
	{"lane_commands", false, func(s *status.Stats) int64 { return s.LaneCommands }},
}

func count(by map[string]metrics.Waits) (n int64) {
	for _, v := range by {
		n += int64(v.Count)
	}
	return n
}

type sample struct {
	at     time.Time
	values [len(series)]int64
}

// Trend is the samples. The zero value has none. Its methods may be called from any goroutine.
type Trend struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

// Add adds a sample.
func (t *Trend) Add(at time.Time, s *status.Stats) {
	one := sample{at: at}
	for i := range series {
		one.values[i] = series[i].of(s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.samples) > kept { // one more than is shown: a rate is between two
		copy(t.samples, t.samples[1:])
		t.samples = t.samples[:kept]
	}
	t.samples = append(t.samples, one)
}

// Lines returns the values of each series, the oldest first. A rate is per second.
func (t *Trend) Lines() map[string][]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string][]float64, len(series))
	for i := range series {
		line := make([]float64, 0, kept)
		for n := 1; n < len(t.samples); n++ {
			before, now := &t.samples[n-1], &t.samples[n]
			if series[i].rate {
				line = append(line, round(float64(now.values[i]-before.values[i])/now.at.Sub(before.at).Seconds()))
			} else {
				line = append(line, float64(now.values[i]))
			}
		}
		out[series[i].name] = line
	}
	return out
}

// round leaves one decimal.
func round(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
