package cli

import (
	"fmt"
	"strconv"
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

// Set implements pflag.Value. A number without a unit is seconds, as with flock.
func (w *patience) Set(text string) error {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		*w = patience{true, time.Duration(seconds) * time.Second}
		return nil
	}
	d, err := ParseDuration(text)
	*w = patience{true, d}
	return err
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
