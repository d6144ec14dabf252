package redislink

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Renewals of short leases are given up before answerLimit. They must not occupy all workers again and again while a
// server does not answer: those of other servers have to be renewed, too.
func TestAServerThatDoesNotAnswerIsAskedByOneCallAtATime(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			hangs := func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
			round := func() (refused int) { // as of a batch for each of 64 slots
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 64 {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), lease/3) // as of a renewal
						defer cancel()
						if err := s.guard(ctx, hangs); errors.Is(err, ErrUnsent) {
							mu.Lock()
							refused++
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				return refused
			}
			round()
			for range 3 {
				if n := round(); n != 63 {
					t.Errorf("lease %v: %d of 64 renewals are refused", lease, n)
				}
			}
			answers := func(context.Context) error { return nil }
			if err := s.guard(t.Context(), answers); err != nil {
				t.Errorf("lease %v: the next call: %v", lease, err)
			}
			if n := round(); n != 0 {
				t.Errorf("lease %v: %d renewals are refused by a server that answers again", lease, n)
			}
		})
	}
}

// A crowd of calls without an answer for a share of their time stops further ones.
func TestACrowdWithoutAnAnswerStopsFurtherCalls(t *testing.T) {
	for lease, while := range map[time.Duration]time.Duration{time.Second: 67 * time.Millisecond, 30 * time.Second: standstill} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			ctx, cancel := context.WithTimeout(t.Context(), lease/3)
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					_ = s.guard(ctx, func(ctx context.Context) error {
						<-ctx.Done()
						return ctx.Err()
					})
				})
			}
			synctest.Wait()
			next := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), lease/3)
				defer cancel()
				return s.guard(ctx, func(context.Context) error { return errors.New("the connection was lost") })
			}
			if err := next(); errors.Is(err, ErrUnsent) {
				t.Errorf("lease %v: refused at once", lease)
			}
			time.Sleep(while + time.Millisecond)
			if err := next(); !errors.Is(err, ErrUnsent) {
				t.Errorf("lease %v: %v after %v without an answer", lease, err, while)
			}
			cancel()
			wg.Wait()
		})
	}
}
