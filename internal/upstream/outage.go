package upstream

import "time"

// OutagePeriod is the time between two entries about an outage that goes on.
const OutagePeriod = time.Minute

// OutageKind says what a contact means to the operator.
type OutageKind int

// The kinds.
const (
	NoEvent      OutageKind = iota // nothing that the log does not have
	OutageBegan                    // Redis is not available, or no longer for the same cause
	OutageGoesOn                   // the same for another period
	OutageOver                     // Redis is available again
)

// OutageEvent is an entry for the log.
type OutageEvent struct {
	Kind     OutageKind
	Cause    string        // of Began and GoesOn
	Lasted   time.Duration // since the first failure
	Failures int           // since then
}

// Outage is the present state. Set Cause before the first use.
//
// It is a state machine without I/O and clock: outcomes of contacts go in, entries for the log come out. An outage has
// one entry at its begin, one for each minute that it lasts or when its cause changes, and one at its end, however many
// connections fail meanwhile.
type Outage struct {
	Cause func(error) string // the error in words from a small set

	since, logged time.Time // zero: Redis is available, as far as is known
	cause         string
	failures      int
}

// Note takes the outcome of a contact.
func (o *Outage) Note(now time.Time, err error) OutageEvent {
	if err == nil {
		e := OutageEvent{Kind: OutageOver, Lasted: now.Sub(o.since), Failures: o.failures}
		if o.since.IsZero() {
			return OutageEvent{}
		}
		o.since, o.failures, o.cause = time.Time{}, 0, ""
		return e
	}
	var kind OutageKind
	cause := o.Cause(err)
	if o.since.IsZero() {
		o.since = now
	}
	o.failures++
	switch {
	case cause != o.cause:
		kind = OutageBegan
	case now.Sub(o.logged) >= OutagePeriod:
		kind = OutageGoesOn
	default:
		return OutageEvent{}
	}
	o.cause, o.logged = cause, now
	return OutageEvent{Kind: kind, Cause: cause, Lasted: now.Sub(o.since), Failures: o.failures}
}
