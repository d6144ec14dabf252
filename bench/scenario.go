package main

import (
	"context"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// scenario is one question, asked to several contestants in turn.
type scenario struct {
	name    string // of files and of -only
	title   string
	about   string // what it shows and how to read it, for the report
	plot    string // what the latencies in the plot are; "": no plot
	columns []column
	// primary is the value whose ratios are in the table: of each round to the same round of each base.
	primary     string
	bases       []string
	contestants []string
	servers     []string // fleet that they need besides Redis
	topology    fleet.Topology
	fresh       bool     // each run has a fleet of its own, because what it measures would see the run before
	rounds      int      // 0: as planned
	flags       []string // of lockproxy
	prepare     func(f *fleet.Fleet) error
	run         func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error)
}

func scenarios(p plan) []scenario {
	return slices.Concat(trafficScenarios(p), lockScenarios(p), shardScenarios(p), failoverScenarios())
}

// column is one value in the table of a scenario.
type column struct {
	key, title, format string
}

// sample is what one run has measured.
type sample struct {
	values map[string]float64
	hist   *hdrhistogram.Histogram // nil: none
}

// Values of most scenarios.
var (
	colRate   = column{"rate", "k/s", "%.1f"}
	colP50    = column{"p50", "p50 ms", "%.3f"}
	colP99    = column{"p99", "p99 ms", "%.3f"}
	colMax    = column{"max", "max ms", "%.2f"}
	colProxy  = column{"proxy", "proxy µs", "%.2f"}
	colRedis  = column{"redis", "Redis µs", "%.2f"}
	colSelf   = column{"self", "generator µs", "%.2f"}
	colAllocs = column{"allocs", "allocs", "%.3f"}
)

func trafficColumns() []column {
	return []column{colRate, colP50, colP99, colMax, colProxy, colRedis, colSelf, colAllocs}
}

// plan is how much is measured.
type plan struct {
	rounds        int
	warm, measure time.Duration
	idle, storm   int
	held          int           // watchdog locks
	lease         time.Duration // of those
	kills         int
	moved         int       // slots of a reshard
	rates         []float64 // of the open loops, per second
	fileLimit     int
}

func fullPlan() plan {
	return plan{
		rounds: 5, warm: 500 * time.Millisecond, measure: 3 * time.Second,
		idle: 10_000, storm: 1000, held: 100_000, lease: 30 * time.Second, kills: 50, moved: 500, rates: []float64{20_000, 50_000},
	}
}

func quickPlan() plan {
	return plan{
		rounds: 1, warm: 100 * time.Millisecond, measure: 200 * time.Millisecond,
		idle: 500, storm: 1000, held: 5000, lease: 6 * time.Second, kills: 3, moved: 50, rates: []float64{10_000},
	}
}

// histValues are the latencies of a histogram in ms.
func histValues(values map[string]float64, h *hdrhistogram.Histogram) {
	const ms = float64(time.Millisecond)
	values["p50"] = float64(h.ValueAtQuantile(50)) / ms
	values["p99"] = float64(h.ValueAtQuantile(99)) / ms
	values["p999"] = float64(h.ValueAtQuantile(99.9)) / ms
	values["max"] = float64(h.Max()) / ms
	values["mean"] = h.Mean() / ms
}
