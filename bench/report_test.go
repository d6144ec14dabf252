package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRatioIsTakenWithinRounds(t *testing.T) {
	run := func(v float64) sample { return sample{values: map[string]float64{"rate": v}} }
	r := &result{samples: map[string][]sample{
		"a": {run(10), run(20), run(300)},
		"b": {run(20), run(10), run(100)},
	}}
	if got := r.ratio("a", "b", "rate"); got != 2 {
		t.Errorf("ratio %v, want the median of 0.5, 2 and 3", got)
	}
	if got := r.median("a", "rate"); got != 20 {
		t.Errorf("median %v, want 20", got)
	}
	if got := r.ratio("a", "nobody", "rate"); !math.IsNaN(got) {
		t.Errorf("ratio to nobody is %v", got)
	}
}

func TestRedisBenchmarkIsReadByTitles(t *testing.T) {
	values := map[string]float64{}
	text := "WARNING: Could not fetch server CONFIG\n" +
		`"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n" +
		`"GET key","50000.00","0.5","0.1","0.4","0.9","1.5","8.0"` + "\n"
	if err := parseCSV([]byte(text), values); err != nil {
		t.Fatal(err)
	}
	if values["rate"] != 50 || values["p50"] != 0.4 || values["p99"] != 1.5 || values["max"] != 8 {
		t.Errorf("got %v", values)
	}
	if err := parseCSV([]byte("oops\n"), values); err == nil {
		t.Error("nonsense is taken for a result")
	}
}

func TestGoalsNameScenariosThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range scenarios(fullPlan()) {
		if known[s.name] {
			t.Errorf("two scenarios are named %s", s.name)
		}
		known[s.name] = true
	}
	r := &report{}
	for name := range known {
		all := map[string]float64{"rate": 1, "p50": 1, "p99": 1, "proxy": 1, "proxy%": 1, "grown": 1, "allocs": 1, "kib": 1, "handovers": 1, "skew": 1}
		res := &result{scenario: scenario{name: name}, samples: map[string][]sample{}}
		for _, who := range []string{
			"direct", "twemproxy", "haproxy", "lockproxy", "LOCK lockproxy",
			evalsha, throughLockproxy, "envoy", "pipe", redislock, redsyncLib, rueidislock,
		} {
			res.samples[who] = []sample{{values: all}}
		}
		r.results = append(r.results, res)
	}
	for _, g := range goals() {
		if math.IsNaN(g.value(r, "lockproxy")) {
			t.Errorf("nothing measures %q", g.claim)
		}
	}
}

func TestBuildsAreComparedWithinRounds(t *testing.T) {
	var s scenario
	for _, s = range lockScenarios(fullPlan()) {
		if s.name == "lock-one-64" {
			break
		}
	}
	s = s.ofBuilds()
	for _, who := range []string{"LOCK lockproxy", "FAIRLOCK lockproxy (baseline)"} {
		if !slices.Contains(s.contestants, who) {
			t.Errorf("%s does not take part in %v", who, s.contestants)
		}
	}
	if slices.Contains(s.contestants, redislock) {
		t.Error("a library takes part")
	}
	run := func(rate, proxy float64) sample {
		return sample{values: map[string]float64{"handovers": rate, "proxy": proxy}}
	}
	res := &result{scenario: s, samples: map[string][]sample{
		"LOCK lockproxy":            {run(9, 10), run(18, 20), run(30, 30)},
		"LOCK lockproxy (baseline)": {run(10, 10), run(20, 20), run(30, 30)},
	}}
	var text strings.Builder
	(&report{results: []*result{res}}).builds(&text)
	if want := "| **0.900** (0.900 – 1.000) | 1.000 (1.000 – 1.000) | 3 |"; !strings.Contains(text.String(), want) {
		t.Errorf("the table has no %s:\n%s", want, &text)
	}
}
