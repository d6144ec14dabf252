package admin

import "time"

// singleFlight answers questions that cost much, one at a time. A question that hangs costs one goroutine, however many
// askers there are.
type singleFlight struct {
	seat chan struct{} // has a value while a question is being answered
}

// newSingleFlight returns a flight in which no question is being answered.
func newSingleFlight() singleFlight { return singleFlight{make(chan struct{}, 1)} }

// Ask returns the answer; false: it has not come within the given time.
func Ask[T any](d singleFlight, most time.Duration, question func() T) (answer T, ok bool) {
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case d.seat <- struct{}{}:
	case <-late.C:
		return answer, false
	}
	answered := make(chan T, 1)
	go func() {
		defer func() { <-d.seat }()
		answered <- question()
	}()
	select {
	case answer = <-answered:
		return answer, true
	case <-late.C:
		return answer, false
	}
}

// Settle waits until no question is being answered, at most for the given time.
func (d singleFlight) Settle(most time.Duration) {
	select {
	case d.seat <- struct{}{}:
	case <-time.After(most):
	}
}
