// Command bench measures lockproxy next to a direct connection, to other proxies and to lock libraries.
//
//	scenario ──► fleet: Redis and the servers in front of it
//	    │
//	    └─ round 1: A B C, round 2: A B C, … ──► samples ──► medians and ratios ──► report, plots, goals
//
// All contestants of a scenario run in turn within each round, so that what disturbs the machine for a while disturbs
// all of them, and ratios are those of runs next to each other.
//
// Everything runs on the main goroutine, except for the clients of lock libraries, which are goroutines by nature, and
// a reader that is slow on purpose.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == holdCommand {
		if err := hold(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "hold:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == fleet.PipeCommand {
		fmt.Fprintln(os.Stderr, "pipe:", fleet.ServePipe(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	quick     bool
	only      string
	skip      string
	rounds    int
	measure   time.Duration
	lockproxy string
	baseline  string
	out       string
	limit     time.Duration
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var set settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&set.quick, "quick", false, "a short run that shows that everything works; writes no files")
	flags.StringVar(&set.skip, "skip", "", "regular expression: leave out the scenarios whose names match, and write no files unless -out is given")
	flags.StringVar(&set.only, "only", "", "regular expression: run only the scenarios whose names match, and write no files unless -out is given")
	flags.IntVar(&set.rounds, "rounds", 0, "rounds of each scenario (0: as planned)")
	flags.DurationVar(&set.measure, "time", 0, "length of one measurement (0: as planned)")
	flags.StringVar(&set.lockproxy, "lockproxy", "", "the program to measure (default: built from the module around this one)")
	flags.StringVar(&set.baseline, "baseline", "", "another build of the program: each scenario runs the two in turn, and nothing else; prints their ratios, and writes no files unless -out is given")
	flags.StringVar(&set.out, "out", "", "directory for the report and the plots (default: results, for a run of everything)")
	flags.DurationVar(&set.limit, "limit", 2*time.Hour, "give up after this time")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	only, err := regexp.Compile(set.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	skip, err := regexp.Compile(set.skip)
	if err != nil {
		return fmt.Errorf("-skip: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, set.limit)
	defer cancel()

	b := &bench{stdout: stdout, plan: fullPlan()}
	if set.quick {
		b.plan = quickPlan()
	}
	if set.rounds > 0 {
		b.plan.rounds = set.rounds
	}
	if set.measure > 0 {
		b.plan.measure = set.measure
	}
	if b.plan.fileLimit, err = fleet.RaiseFileLimit(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "lockproxy-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // a temporary directory
	if set.lockproxy == "" {
		set.lockproxy = filepath.Join(temp, "lockproxy")
		if err := build(ctx, set.lockproxy); err != nil {
			return err
		}
	}
	if set.lockproxy, err = filepath.Abs(set.lockproxy); err != nil {
		return err
	}
	if b.programs, err = fleet.Find(set.lockproxy); err != nil {
		return err
	}
	if set.baseline != "" {
		if b.programs.Baseline, err = filepath.Abs(set.baseline); err != nil {
			return err
		}
	}

	r := &report{began: time.Now(), machine: describe(b.programs), args: args, plan: b.plan}
	for _, s := range scenarios(b.plan) {
		if !only.MatchString(s.name) || set.skip != "" && skip.MatchString(s.name) {
			continue
		}
		if set.baseline != "" {
			s = s.ofBuilds()
		}
		r.results = append(r.results, b.measure(ctx, s))
	}
	if len(r.results) == 0 {
		return fmt.Errorf("-only %q -skip %q: no such scenario", set.only, set.skip)
	}
	r.took = time.Since(r.began)
	if set.out == "" && !set.quick && set.only == "" && set.skip == "" && set.baseline == "" {
		set.out = "results"
	}
	if set.out != "" {
		if err := r.write(set.out); err != nil {
			return err
		}
	} else {
		r.summary(stdout)
	}
	fmt.Fprintf(stdout, "took %v\n", r.took.Round(time.Second))
	return r.failed()
}

// build makes the program to measure as a release would be.
func build(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/lockproxy")
	cmd.Dir, cmd.Env, cmd.Stderr = "..", append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build lockproxy: %w", err)
	}
	return nil
}
