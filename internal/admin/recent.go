package admin

import (
	"sync"
	"time"
)

// recentValue asks for a value that may take arbitrarily long to get, because of a lock that is held or a Redis that
// does not answer. The caller waits for a bounded time. At most one question is under way, so a question that hangs
// costs one goroutine, however many callers there are.
type recentValue[T any] struct {
	Ask func() T // immutable

	mu     sync.Mutex    // guards the fields below; never held while asking
	asking chan struct{} // closed when the question under way is answered; nil: none is
	value  T
	at     time.Time // when the answer to value came; zero: there was none
}

// Get waits, at most for the given time, for the answer to a question that was put after the call. It returns the last
// answer and the time of it; fresh reports that the answer is no older than the call.
func (r *recentValue[T]) Get(most time.Duration) (value T, at time.Time, fresh bool) {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	begin := time.Now()
	for {
		r.mu.Lock()
		asked := r.asking != nil
		if !asked {
			r.asking = make(chan struct{})
			go r.run(r.asking)
		}
		answered := r.asking
		r.mu.Unlock()
		late := false
		select {
		case <-answered:
		case <-deadline.C:
			late = true
		}
		r.mu.Lock()
		value, at = r.value, r.at
		r.mu.Unlock()
		if late || !asked {
			return value, at, !late && !at.Before(begin)
		}
		// The question under way was put before this call. The next answer is to a question put after it.
	}
}

// Settle waits until no question is under way, at most for the given time.
func (r *recentValue[T]) Settle(most time.Duration) {
	r.mu.Lock()
	asking := r.asking
	r.mu.Unlock()
	if asking == nil {
		return
	}
	select {
	case <-asking:
	case <-time.After(most):
	}
}

// run puts the question. It is the only writer of value.
func (r *recentValue[T]) run(answered chan struct{}) {
	value := r.Ask()
	r.mu.Lock()
	r.value, r.at, r.asking = value, time.Now(), nil
	r.mu.Unlock()
	close(answered)
}
