package main

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// goal is a claim about one value of one server, mostly as a ratio to a peer in the same round.
type goal struct {
	claim string
	most  bool // the bound is the largest that will do; else the smallest
	bound float64
	value func(r *report, server string) float64
}

// ratioOf is the ratio of a value to that of a peer.
func ratioOf(scenario, key, base string) func(*report, string) float64 {
	return func(r *report, server string) float64 {
		if res := r.result(scenario); res != nil {
			return res.ratio(server, base, key)
		}
		return math.NaN()
	}
}

// valueOf is a value itself.
func valueOf(scenario, key string) func(*report, string) float64 {
	return func(r *report, server string) float64 {
		if res := r.result(scenario); res != nil {
			return res.median(server, key)
		}
		return math.NaN()
	}
}

// overBest compares LOCK with the best of the libraries, which is the one with the largest value, or with the smallest.
func overBest(scenario, key string, smallest bool) func(*report, string) float64 {
	return func(r *report, server string) float64 {
		res := r.result(scenario)
		if res == nil {
			return math.NaN()
		}
		best := math.NaN()
		for _, library := range []string{redislock, redsyncLib, rueidislock} {
			v := res.median(library, key)
			if math.IsNaN(best) || (v < best) == smallest {
				best = v
			}
		}
		return res.median("LOCK "+server, key) / best
	}
}

func (r *report) result(scenario string) *result {
	for _, res := range r.results {
		if res.name == scenario {
			return res
		}
	}
	return nil
}

func goals() []goal {
	above := func(bound float64, claim string, value func(*report, string) float64) goal {
		return goal{claim: claim, bound: bound, value: value}
	}
	below := func(bound float64, claim string, value func(*report, string) float64) goal {
		return goal{claim: claim, most: true, bound: bound, value: value}
	}
	return []goal{
		above(1.0, "50 clients: commands/s × twemproxy", ratioOf("get-50", "rate", fleet.Twemproxy)),
		above(1.3, "50 clients: commands/s × HAProxy", ratioOf("get-50", "rate", fleet.HAProxy)),
		below(0.8, "50 clients: p50 × twemproxy", ratioOf("get-50", "p50", fleet.Twemproxy)),
		below(1.2, "50 clients: p99 × twemproxy", ratioOf("get-50", "p99", fleet.Twemproxy)),
		below(1.0, "50 clients: proxy CPU per command × twemproxy", ratioOf("get-50", "proxy", fleet.Twemproxy)),
		above(2.0, "50 clients, 16 at a time: commands/s × twemproxy", ratioOf("get-50-p16", "rate", fleet.Twemproxy)),
		above(1.4, "50 clients, 16 at a time: commands/s × HAProxy", ratioOf("get-50-p16", "rate", fleet.HAProxy)),
		above(1.0, "500 clients: commands/s × twemproxy", ratioOf("get-500", "rate", fleet.Twemproxy)),
		below(40, "one client: p50 above direct, µs", func(r *report, server string) float64 {
			res := r.result("get-1")
			if res == nil {
				return math.NaN()
			}
			return (res.median(server, "p50") - res.median(fleet.Direct, "p50")) * 1000
		}),
		above(0.8, "1 MB GET: values/s × HAProxy", ratioOf("get-1mb", "rate", fleet.HAProxy)),
		below(64, "1 MB GET: memory grown, MiB", valueOf("get-1mb", "grown")),
		below(0.005, "heap allocations per command", valueOf("get-50", "allocs")),
		below(4, "KiB per idle client", valueOf("idle", "kib")),
		above(1.0, "LOCK+UNLOCK, 64 clients: pairs/s × EVALSHA direct", ratioOf("lock-keys-64", "rate", evalsha)),
		above(0.85, "LOCK+UNLOCK, 64 clients: pairs/s × EVALSHA through lockproxy", ratioOf("lock-keys-64", "rate", throughLockproxy)),
		above(1.0, "50 clients: commands/s × pipe", ratioOf("get-50", "rate", fleet.Pipe)),
		above(1.0, "50 clients: commands/s × Envoy", ratioOf("get-50", "rate", fleet.Envoy)),
		above(1.0, "LOCK+UNLOCK, 64 clients: pairs/s × rueidislock", ratioOf("lock-keys-64", "rate", rueidislock)),
		above(1.5, "one key, 64 contenders: hand-overs/s × best library", overBest("lock-one-64", "handovers", false)),
		below(0.1, "one key, 64 contenders: p99 wait × best library", overBest("lock-one-64", "p99", true)),
		below(5, "one key, 64 contenders: longest wait × mean", func(r *report, server string) float64 {
			return valueOf("lock-one-64", "skew")(r, "LOCK "+server)
		}),
		below(10, "watchdog locks: renewal, % of a core", valueOf("watchdog", "proxy%")),
	}
}

// goals writes a table of the goals that the results can judge, and behind it one of those that were missed.
func (r *report) goals(w io.Writer) {
	r.table(w, true)
	var missed bytes.Buffer
	if r.table(&missed, false) > 0 {
		fmt.Fprintf(w, "Goals missed:\n\n%s", &missed)
	}
}

// table writes the goals that were reached, or those that were missed, and returns how many.
func (r *report) table(w io.Writer, reached bool) (rows int) {
	fmt.Fprintf(w, "| goal | bound | measured |\n|---|---:|---:|\n")
	for _, g := range goals() {
		v := g.value(r, fleet.Lockproxy)
		if math.IsNaN(v) || g.reached(v) != reached {
			continue
		}
		sign := "≥"
		if g.most {
			sign = "≤"
		}
		rows++
		fmt.Fprintf(w, "| %s | %s %v | %.3g |\n", g.claim, sign, g.bound, v)
	}
	fmt.Fprintln(w)
	return rows
}

// reached judges a value.
func (g goal) reached(v float64) bool { return v == g.bound || (v < g.bound) == g.most }
