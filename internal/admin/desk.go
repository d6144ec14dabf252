package admin

import "time"

// Desk answers questions that cost much, one at a time. A question that hangs costs one goroutine, however many askers
// there are.
type Desk struct {
	seat chan struct{} // has a value while a question is being answered
}

// NewDesk returns a desk at which no question is being answered.
func NewDesk() Desk { return Desk{make(chan struct{}, 1)} }

// Ask returns the answer; false: it has not come within the given time.
func Ask[T any](d Desk, most time.Duration, question func() T) (answer T, ok bool) {
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
func (d Desk) Settle(most time.Duration) {
	select {
	case d.seat <- struct{}{}:
	case <-time.After(most):
	}
}
