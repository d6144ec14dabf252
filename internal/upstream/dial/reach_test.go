package dial

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("connection refused")

// reachOf is a reach whose attempts go as try says.
func reachOf(wg *sync.WaitGroup, try func() error) *reach {
	r := &reach{stop: make(chan struct{}), spawn: wg.Go}
	r.try = func(context.Context) error {
		err := try()
		r.note(err)
		return err
	}
	return r
}

func TestOneAttemptSpeaksForAllWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		var tries atomic.Int64
		r := reachOf(&wg, func() error {
			tries.Add(1)
			return errAway
		})
		r.note(errAway)
		begin := time.Now()
		for range 1000 {
			wg.Go(func() {
				for time.Since(begin) < time.Second {
					asked := time.Now()
					if err := r.pass(t.Context()); !errors.Is(err, errAway) {
						t.Errorf("pass = %v", err)
					}
					if waited := time.Since(asked); waited > patience {
						t.Errorf("refused after %v", waited)
					}
				}
			})
		}
		wg.Wait()
		if n, most := tries.Load(), int64(time.Second/tryEvery)+1; n > most {
			t.Errorf("%d attempts within a second, want at most %d", n, most)
		}
	})
}

func TestAnAttemptThatHangsHoldsNobodyUpForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		r := reachOf(&wg, func() error {
			time.Sleep(3 * time.Second)
			return errAway
		})
		r.note(errAway)
		for range 10 {
			asked := time.Now()
			if err := r.pass(t.Context()); !errors.Is(err, errAway) {
				t.Errorf("pass = %v", err)
			}
			if waited := time.Since(asked); waited > patience {
				t.Errorf("refused after %v", waited)
			}
		}
		wg.Wait()
	})
}

func TestAGoodContactEndsTheWaitOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		r := reachOf(&wg, func() error { return nil })
		r.note(errAway)
		tell := make(chan struct{}, 1)
		if !r.rest(tell, errAway) {
			t.Error("there was no good contact yet")
		}
		if err := r.pass(t.Context()); err != nil {
			t.Errorf("pass = %v", err)
		}
		select {
		case <-tell:
		default:
			t.Error("the good contact was not told")
		}
		if r.rest(tell, errAway) {
			t.Error("the good contact is forgotten")
		}
		if !r.rest(tell, &RefusedError{Reply: "ERR max number of clients reached"}) {
			t.Error("a Redis that refuses is not worth another attempt at once")
		}
		r.wake(tell)
		wg.Wait()
	})
}

// Redis refuses one connection as the other. So they would wake each other, or themselves, for ever.
func TestARefusalWakesNoConnectionThatWasRefused(t *testing.T) {
	r := reachOf(nil, nil)
	refusal := &RefusedError{Reply: "WRONGPASS invalid username-password pair or user is disabled."}
	refused, unreached := make(chan struct{}, 1), make(chan struct{}, 1)
	r.note(errAway)
	r.rest(unreached, errAway)
	r.rest(refused, refusal)
	r.note(refusal)
	if len(refused) != 0 {
		t.Error("a refusal has woken a connection that was refused")
	}
	if len(unreached) != 1 {
		t.Error("a refusal has not woken a connection that did not reach Redis")
	}
	r.note(nil)
	if len(refused) != 1 {
		t.Error("a success has not woken a connection that was refused")
	}
}
