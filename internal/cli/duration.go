package cli

import (
	"fmt"
	"strings"
	"time"
)

// Duration is the value of a flag.
type Duration time.Duration

// ParseDuration reads a duration with its unit.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration with a unit, as in 30s or 1h30m", text)
	}
	return d, nil
}

// Set implements pflag.Value.
func (d *Duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// String implements pflag.Value.
func (d *Duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (*Duration) Type() string { return "duration" }

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
