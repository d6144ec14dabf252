package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// Two builds of lockproxy are compared as two contestants: one has the name that it always has, the other that name
// with a suffix.
const baseline = " (baseline)"

// ofBuilds is the scenario with the two builds of lockproxy as its only contestants.
func (s scenario) ofBuilds() scenario {
	var both []string
	for _, name := range s.contestants {
		if isLockproxy(name) {
			both = append(both, name, name+baseline)
		}
	}
	s.contestants, s.bases = both, nil
	s.servers = slices.DeleteFunc(slices.Clone(s.servers), func(name string) bool { return !isLockproxy(name) })
	return s
}

func isLockproxy(contestant string) bool {
	return strings.HasSuffix(contestant, fleet.Lockproxy)
}

// buildOf is the contestant without the word for its build.
func buildOf(contestant string) string { return strings.TrimSuffix(contestant, baseline) }

// runOn runs a contestant on its servers.
func (s scenario) runOn(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
	if strings.HasSuffix(who, baseline) {
		return s.run(ctx, b, f.Baseline, buildOf(who))
	}
	return s.run(ctx, b, f, who)
}

// slower is the ratio to the baseline from which a value counts as worse, or its inverse where more is better.
const slower = 1.03

// builds writes the ratios of the two builds.
func (r *report) builds(w io.Writer) {
	fmt.Fprintf(w, "Each value is that of this build divided by that of the baseline in the same round: the median, and the quartiles. "+
		"Bold: worse by more than 3 %%.\n\n")
	fmt.Fprintf(w, "| scenario | | of | × baseline | proxy µs × baseline | rounds |\n|---|---|---|---:|---:|---:|\n")
	for _, res := range r.results {
		for _, who := range res.contestants {
			if strings.HasSuffix(who, baseline) {
				continue
			}
			ratios := res.ratios(who, who+baseline, res.primary)
			if len(ratios) == 0 {
				continue
			}
			fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %d |\n", res.name, who, res.columnTitle(res.primary),
				compared(ratios, moreIsBetter(res.primary)), compared(res.ratios(who, who+baseline, "proxy"), false), len(ratios))
		}
	}
	fmt.Fprintln(w)
}

func moreIsBetter(key string) bool { return key == "rate" || key == "handovers" }

// compared shows ratios to the baseline.
func compared(ratios []float64, more bool) string {
	m := median(ratios) // which sorts them
	if math.IsNaN(m) {
		return ""
	}
	text := fmt.Sprintf("%.3f", m)
	if !more && m > slower || more && m < 1/slower {
		text = "**" + text + "**"
	}
	n := len(ratios)
	return fmt.Sprintf("%s (%.3f – %.3f)", text, ratios[n/4], ratios[n-1-n/4])
}
