package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// benchmark is a scenario whose load comes from Redis's own tool, as a check on ours.
func benchmark(name, title string, depth int) scenario {
	return traffic(scenario{
		name: name, title: title, primary: "rate",
		columns: []column{colRate, colP50, colP99, colMax, colProxy, colRedis, colAllocs},
		about:   "The load comes from redis-benchmark, as a check on the generator used everywhere else. Latencies are its own, of whole batches.",
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			s := f.Servers[who]
			out := sample{values: map[string]float64{}}
			// About as long as the other scenarios, at the speed of a direct connection.
			n := int(b.plan.measure.Seconds() * 80_000)
			if depth > 1 {
				n *= 8
			}
			host, port, err := net.SplitHostPort(s.Addr)
			if err != nil {
				return out, fmt.Errorf("redis-benchmark: %w", err)
			}
			m, err := newMeter(ctx, s)
			if err != nil {
				return out, err
			}
			cmd := exec.CommandContext(ctx, b.programs.RedisBenchmark, "-h", host, "-p", port, "-c", "50", "-n", strconv.Itoa(n),
				"-P", strconv.Itoa(depth), "--csv", "-r", strconv.Itoa(keys), "GET", "key:__rand_int__")
			text, err := cmd.Output()
			if err != nil {
				return out, fmt.Errorf("redis-benchmark: %w", err)
			}
			if _, err := m.end(ctx, out.values, float64(n)); err != nil {
				return out, err
			}
			return out, parseCSV(text, out.values)
		},
	})
}

// parseCSV reads the two lines that redis-benchmark prints: titles and values.
func parseCSV(text []byte, values map[string]float64) error {
	rows, err := csv.NewReader(bytes.NewReader(text[max(0, bytes.Index(text, []byte(`"test"`))):])).ReadAll()
	if err != nil || len(rows) < 2 {
		return fmt.Errorf("redis-benchmark printed %.200q: %w", text, err)
	}
	names := map[string]string{"p50_latency_ms": "p50", "p99_latency_ms": "p99", "max_latency_ms": "max", "rps": "rate"}
	for i, title := range rows[0] {
		key, ok := names[title]
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(rows[1][i], 64)
		if err != nil {
			return fmt.Errorf("redis-benchmark: %s: %w", title, err)
		}
		if key == "rate" {
			v /= 1000
		}
		values[key] = v
	}
	return nil
}
