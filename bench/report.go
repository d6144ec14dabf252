package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is what a run of the program has to tell.
type report struct {
	began   time.Time
	took    time.Duration
	machine machine
	args    []string
	plan    plan
	results []*result
}

// failed joins what went wrong.
func (r *report) failed() error {
	var errs []error
	for _, res := range r.results {
		errs = append(errs, res.err)
	}
	return errors.Join(errs...)
}

// median of the values of a contestant; NaN if there are none.
func (r *result) median(who, key string) float64 {
	var all []float64
	for _, s := range r.samples[who] {
		if v, ok := s.values[key]; ok {
			all = append(all, v)
		}
	}
	return median(all)
}

// ratio is the median of the ratios of runs in the same round.
func (r *result) ratio(who, base, key string) float64 { return median(r.ratios(who, base, key)) }

// ratios are those of runs in the same round.
func (r *result) ratios(who, base, key string) (all []float64) {
	for i := range min(len(r.samples[who]), len(r.samples[base])) {
		a, ok := r.samples[who][i].values[key]
		b, ok2 := r.samples[base][i].values[key]
		if ok && ok2 && b != 0 {
			all = append(all, a/b)
		}
	}
	return all
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// write makes latest.md and the plots in dir.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Results\n\n")
	r.header(&text)
	fmt.Fprintf(&text, "Values are medians of the rounds; ratios (×) are medians of the ratios within a round. [How to read them](%s).\n\n", readmeLink(dir))
	r.summary(&text)
	for _, res := range r.results {
		res.table(&text)
		if res.plot == "" {
			continue
		}
		name := res.name + ".svg"
		drawn, err := res.draw(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("plot %s: %w", res.name, err)
		}
		if drawn {
			fmt.Fprintf(&text, "![%s](%s)\n\n", res.plot, name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "latest.md"), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// readmeLink is the way from a report in dir to the page that explains it. Parts of the results are one directory
// deeper.
func readmeLink(dir string) string {
	if filepath.Base(filepath.Dir(filepath.Clean(dir))) == "results" {
		return "../../README.md"
	}
	return "../README.md"
}

// summary is what the results say of the goals, or of two builds.
func (r *report) summary(w io.Writer) {
	if r.machine.baseline != "" {
		r.builds(w)
		return
	}
	r.goals(w)
}

func (r *report) header(w io.Writer) {
	m := r.machine
	command := "make bench"
	if len(r.args) > 0 {
		command += fmt.Sprintf(" ARGS='%s'", strings.Join(r.args, " "))
	}
	fmt.Fprintf(w, "- %s, lockproxy %s, `%s`, took %v\n", r.began.UTC().Format("2006-01-02 15:04 UTC"), m.commit, command, r.took.Round(time.Second))
	fmt.Fprintf(w, "- %s, %s, load average at the start %s\n", m.cpu, m.kernel, m.load)
	fmt.Fprintf(w, "- %s, %s\n", m.programs, m.libraries)
	if m.baseline != "" {
		fmt.Fprintf(w, "- baseline: %s\n", m.baseline)
	}
	fmt.Fprintf(w, "- up to %d rounds of %v after %v of warming up\n\n", r.plan.rounds, r.plan.measure, r.plan.warm)
}

func (r *result) table(w io.Writer) {
	fmt.Fprintf(w, "## %s\n\n`%s`. %s\n\n", r.title, r.name, r.about)
	for _, who := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(w, "Skipped: %s, %s.\n\n", who, r.skipped[who])
	}
	if r.err != nil {
		fmt.Fprintf(w, "Failed: %s\n\n", strings.ReplaceAll(r.err.Error(), "\n", "; "))
	}
	var columns []column
	for _, c := range r.columns {
		if slices.ContainsFunc(r.contestants, func(who string) bool { return !math.IsNaN(r.median(who, c.key)) }) {
			columns = append(columns, c)
		}
	}
	var bases []string
	for _, base := range r.bases {
		if len(r.samples[base]) > 0 {
			bases = append(bases, base)
		}
	}
	fmt.Fprintf(w, "| |")
	for _, c := range columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	for _, base := range bases {
		fmt.Fprintf(w, " × %s |", base)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|", len(columns)+len(bases)))
	for _, who := range r.contestants {
		if len(r.samples[who]) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s |", who)
		for _, c := range columns {
			fmt.Fprintf(w, " %s |", number(c.format, r.median(who, c.key)))
		}
		for _, base := range bases {
			fmt.Fprintf(w, " %s |", number("%.2f", r.ratio(who, base, r.primary)))
		}
		fmt.Fprintln(w)
	}
	if len(bases) > 0 {
		fmt.Fprintf(w, "\nThe ratios are of %s.\n", r.columnTitle(r.primary))
	}
	fmt.Fprintln(w)
}

func (r *result) columnTitle(key string) string {
	for _, c := range r.columns {
		if c.key == key {
			return c.title
		}
	}
	return key
}

func number(format string, v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(format, v)
}
