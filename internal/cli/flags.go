package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// FlagError is an error of a parser of flags, in words for a user: it names the flag as it is written, and the flag
// that is meant, perhaps.
func FlagError(err error, flags *pflag.FlagSet) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if _, number := errors.AsType[*strconv.NumError](err); number {
			return fmt.Errorf("--%s: %q is not a whole number", invalid.GetFlag().Name, invalid.GetValue())
		}
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s needs a value", missing.GetFlag().Name)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !ok:
		return err
	case unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag: -%s", unknown.GetSpecifiedName())
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	// Behind a blank may be a password, in an argument that was not divided.
	name, _, _ := strings.Cut("--"+unknown.GetSpecifiedName(), " ")
	return errors.New("unknown flag: " + name + Meant(name, names))
}

// Meant is the end of an error about a misspelt name: it has the name that is meant, perhaps. A part of a name behind
// its section stands for the whole.
func Meant(name string, candidates []string) string {
	part := strings.TrimPrefix(strings.TrimPrefix(name, "--"), "LOCKPROXY_")
	best, least := "", len(name)
	for _, candidate := range candidates {
		rest, ok := strings.CutSuffix(candidate, part)
		if ok && rest != "" && strings.ContainsAny(rest[len(rest)-1:], "-_.") {
			best = candidate
			break
		}
		same := 0
		for same < min(len(name), len(candidate)) && name[same] == candidate[same] {
			same++
		}
		if d := distance(name, candidate); d < least && d <= min(1+len(name)/4, max(2, 1+(len(name)-same)/4)) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance is how many characters are to be changed, added or removed to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// ParseDuration reads a duration with its unit.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration with a unit, as in 30s or 1h30m", text)
	}
	return d, nil
}

// patience is how long exec waits for a lock. The zero value has no limit.
type patience struct {
	limited bool
	limit   time.Duration
}

// Set implements pflag.Value. A number without a unit is seconds, perhaps with a fraction, as with flock.
func (w *patience) Set(text string) error {
	unit := ""
	if strings.Trim(text, "0123456789.") == "" {
		unit = "s"
	}
	d, err := time.ParseDuration(text + unit)
	if err != nil {
		return fmt.Errorf("%q is neither a number of seconds nor a duration with a unit, as in 10, 0.5 or 1h30m", text)
	}
	*w = patience{true, d}
	return nil
}

// String implements pflag.Value.
func (w *patience) String() string {
	if !w.limited {
		return ""
	}
	return w.limit.String()
}

// Type implements pflag.Value.
func (*patience) Type() string { return "duration" }
