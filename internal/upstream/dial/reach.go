package dial

import (
	"context"
	"sync"
	"time"
)

// reach tells all connections whether Redis can be reached. While it cannot, one attempt at a time serves all of them,
// however many commands, lanes and pins ask. The first successful contact ends the wait of all.
type reach struct {
	try   func(context.Context) error // connects, notes the outcome, and hangs up
	spawn func(func())                // runs a goroutine, for which the end of Run waits
	stop  <-chan struct{}             // closed when no attempt is needed any more

	mu      sync.Mutex
	cause   error    // why the last attempt did not reach Redis; nil: Redis is reachable, as far as is known
	attempt *attempt // the one in flight; nil: none
	last    time.Time
	// Told of a contact; true: only of a successful one, because Redis has refused this connection.
	resting map[chan<- struct{}]bool
}

// attempt is one try for which several connections wait.
type attempt struct {
	done chan struct{} // closed when err is set
	err  error
}

const (
	// tryEvery is the least time between two common attempts.
	tryEvery = 20 * time.Millisecond

	// patience bounds the wait for one.
	patience = 150 * time.Millisecond
)

// pass returns nil at once if Redis is reachable as far as is known. Else it asks for an attempt, and returns its
// outcome.
func (r *reach) pass(ctx context.Context) error {
	r.mu.Lock()
	cause := r.cause
	if cause == nil {
		r.mu.Unlock()
		return nil
	}
	a := r.askLocked()
	r.mu.Unlock()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-a.done:
		return a.err
	case <-limit.C:
		return cause
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askLocked returns the attempt in flight, or begins one. Requires reach.mu.
func (r *reach) askLocked() *attempt {
	if r.attempt == nil {
		a := &attempt{done: make(chan struct{})}
		r.attempt = a
		begin := r.last.Add(tryEvery)
		r.spawn(func() { r.make(a, begin) })
	}
	return r.attempt
}

// away reports whether Redis could not be reached at the last attempt, and then has another one made.
func (r *reach) away() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == nil {
		return false
	}
	r.askLocked()
	return true
}

// make makes an attempt, not before the given time.
func (r *reach) make(a *attempt, begin time.Time) {
	ctx, cancel := UntilClosed(r.stop)
	defer cancel()
	select {
	case <-time.After(time.Until(begin)):
		a.err = r.try(ctx)
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	r.mu.Lock()
	r.attempt, r.last = nil, time.Now()
	r.mu.Unlock()
	close(a.done)
}

// note notes the outcome of an attempt to connect. A Redis that refuses a connection has been reached.
func (r *reach) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !IsRefused(err) {
		r.cause = err
		return
	}
	r.foundLocked(err)
}

// renew says that the server is somewhere else now: what is known is about another process.
func (r *reach) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foundLocked(nil)
}

// foundLocked ends the waits of connections that may succeed now. A refusal says nothing new to those that were
// refused: they would wake each other, or themselves, for ever. Requires reach.mu.
func (r *reach) foundLocked(refusal error) {
	r.cause = nil
	for tell, refused := range r.resting {
		if refused && refusal != nil {
			continue
		}
		select {
		case tell <- struct{}{}:
		default:
		}
	}
}

// rest has contacts told on a channel of capacity one, until wake: all after an attempt that did not reach Redis,
// successful ones after one that Redis refused. err is its outcome. It reports false if Redis was reached since.
func (r *reach) rest(tell chan<- struct{}, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting == nil {
		r.resting = map[chan<- struct{}]bool{}
	}
	refused := IsRefused(err)
	r.resting[tell] = refused
	return r.cause != nil || refused
}

func (r *reach) wake(tell chan<- struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resting, tell)
}

// UntilClosed returns a context that ends when stop is closed.
func UntilClosed(stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
