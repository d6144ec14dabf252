// Package outage follows whether Redis is available to the proxy. Outcomes of contacts go in, entries for the log come out. The state machine
// Outage has no I/O and no clock; Contacts is its shell. An outage has one entry at its begin, one for each minute that it lasts or when its cause changes, and one
// at its end, however many connections fail meanwhile.
package outage

import "time"

// Period is the time between two entries about an outage that goes on.
const Period = time.Minute

// Kind says what a contact means to the operator.
type Kind int

// The kinds.
const (
	Nothing Kind = iota // nothing that the log does not have
	Began               // Redis is not available, or no longer for the same cause
	GoesOn              // the same for another period
	Over                // Redis is available again
)

// Event is an entry for the log.
type Event struct {
	Kind     Kind
	Cause    string        // of Began and GoesOn
	Lasted   time.Duration // since the first failure
	Failures int           // since then
}

// Outage is the present state. Set Cause before the first use.
type Outage struct {
	Cause func(error) string // the error in words from a small set

	since, logged time.Time // zero: Redis is available, as far as is known
	cause         string
	failures      int
}

// Note takes the outcome of a contact.
func (o *Outage) Note(now time.Time, err error) Event {
	if err == nil {
		e := Event{Kind: Over, Lasted: now.Sub(o.since), Failures: o.failures}
		if o.since.IsZero() {
			return Event{}
		}
		o.since, o.failures, o.cause = time.Time{}, 0, ""
		return e
	}
	var kind Kind
	cause := o.Cause(err)
	if o.since.IsZero() {
		o.since = now
	}
	o.failures++
	switch {
	case cause != o.cause:
		kind = Began
	case now.Sub(o.logged) >= Period:
		kind = GoesOn
	default:
		return Event{}
	}
	o.cause, o.logged = cause, now
	return Event{Kind: kind, Cause: cause, Lasted: now.Sub(o.since), Failures: o.failures}
}
