package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

// bench runs scenarios.
type bench struct {
	stdout   io.Writer
	plan     plan
	programs fleet.Programs
}

// result is what the runs of a scenario have measured.
type result struct {
	scenario
	samples map[string][]sample // by contestant, one per round
	skipped map[string]string   // contestant, reason
	err     error
}

// runLimit bounds one run beyond the time that it measures: connecting, filling, 100,000 locks.
const runLimit = 3 * time.Minute

// measure runs a scenario: in every round each contestant once.
func (b *bench) measure(ctx context.Context, s scenario) *result {
	began := time.Now()
	defer func() { fmt.Fprintf(b.stdout, "  (%.1fs)\n", time.Since(began).Seconds()) }()
	r := &result{scenario: s, samples: map[string][]sample{}, skipped: map[string]string{}}
	fmt.Fprintf(b.stdout, "\n%s: %s\n", s.name, s.title)
	var who []string
	for _, name := range s.contestants {
		if reason := b.programs.Missing(strings.TrimPrefix(name, scripts)); reason != "" {
			r.skipped[name] = reason
			fmt.Fprintf(b.stdout, "  %s skipped: %s\n", name, reason)
			continue
		}
		who = append(who, name)
	}
	rounds := s.rounds
	if rounds == 0 || rounds > b.plan.rounds {
		rounds = b.plan.rounds
	}
	var f *fleet.Fleet
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for round := range rounds {
		for i := range who {
			name := who[i]
			if b.programs.Baseline != "" && round%2 == 1 { // so that neither build is always the first
				name = who[len(who)-1-i]
			}
			if ctx.Err() != nil {
				r.err = errors.Join(r.err, ctx.Err())
				return r
			}
			if s.fresh && f != nil {
				f.Close()
				f = nil
			}
			if f == nil {
				var err error
				if f, err = b.fleet(ctx, s, name); err != nil {
					r.err = errors.Join(r.err, err)
					return r
				}
			}
			runCtx, cancel := context.WithTimeout(ctx, runLimit+b.plan.measure)
			out, err := s.runOn(runCtx, b, f, name)
			cancel()
			if err != nil {
				fmt.Fprintf(b.stdout, "  %-31s FAILED: %v\n", name, err)
				r.err = errors.Join(r.err, fmt.Errorf("%s: %s: %w", s.name, name, err))
				f.Close() // whatever the failure has left behind
				f = nil
				continue
			}
			r.samples[name] = append(r.samples[name], out)
			b.print(s, name, out)
		}
	}
	return r
}

// fleet starts what a scenario needs; only the one contestant if each has a fleet of its own.
func (b *bench) fleet(ctx context.Context, s scenario, name string) (*fleet.Fleet, error) {
	names := s.servers
	if s.fresh {
		names = slices.DeleteFunc(slices.Clone(names), func(server string) bool { return !strings.HasSuffix(buildOf(name), server) })
	}
	f, err := fleet.Start(ctx, fleet.Options{Programs: b.programs, Topology: s.topology, Names: names, FileLimit: b.plan.fileLimit, Lockproxy: s.flags})
	if err != nil {
		return nil, err
	}
	if s.prepare != nil {
		if err := s.prepare(f); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

func (b *bench) print(s scenario, name string, out sample) {
	fmt.Fprintf(b.stdout, "  %-31s", name)
	for _, c := range s.columns {
		if v, ok := out.values[c.key]; ok {
			fmt.Fprintf(b.stdout, "  %s "+c.format, c.title, v)
		}
	}
	fmt.Fprintln(b.stdout)
}

// mergedHist is the distribution of all rounds.
func (r *result) mergedHist(name string) (all *hist) {
	for _, s := range r.samples[name] {
		if s.hist == nil {
			continue
		}
		if all == nil {
			all = load.NewHistogram()
		}
		all.Merge(s.hist)
	}
	return all
}
