package upstream

import "time"

// outagePeriod is the time between two entries about an outage that goes on.
const outagePeriod = time.Minute

// outageKind says what a contact means to the operator.
type outageKind int

// The kinds.
const (
	noEvent      outageKind = iota // nothing that the log does not have
	outageBegan                    // Redis is not available, or no longer for the same cause
	outageGoesOn                   // the same for another period
	outageOver                     // Redis is available again
)

// outageEvent is an entry for the log.
type outageEvent struct {
	Kind     outageKind
	Cause    string        // of outageBegan and outageGoesOn
	Lasted   time.Duration // since the first failure
	Failures int           // since then
}

// outageState is the present state. Set Cause before the first use.
//
// It is a state machine without I/O and clock: outcomes of contacts go in, entries for the log come out. An outage has
// one entry at its begin, one for each minute that it lasts or when its cause changes, and one at its end, however many
// connections fail meanwhile.
type outageState struct {
	Cause func(error) string // the error in words from a small set

	since, logged time.Time // zero: Redis is available, as far as is known
	cause         string
	failures      int
}

// Note takes the outcome of a contact.
func (o *outageState) Note(now time.Time, err error) outageEvent {
	if err == nil {
		e := outageEvent{Kind: outageOver, Lasted: now.Sub(o.since), Failures: o.failures}
		if o.since.IsZero() {
			return outageEvent{}
		}
		o.since, o.failures, o.cause = time.Time{}, 0, ""
		return e
	}
	var kind outageKind
	cause := o.Cause(err)
	if o.since.IsZero() {
		o.since = now
	}
	o.failures++
	switch {
	case cause != o.cause:
		kind = outageBegan
	case now.Sub(o.logged) >= outagePeriod:
		kind = outageGoesOn
	default:
		return outageEvent{}
	}
	o.cause, o.logged = cause, now
	return outageEvent{Kind: kind, Cause: cause, Lasted: now.Sub(o.since), Failures: o.failures}
}
