package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// runFunc is a server that is one function.
type runFunc func(ctx context.Context) error

func (f runFunc) Run(ctx context.Context) error { return f(ctx) }

var _ server = runFunc(nil)

func TestFirstSignalDrains(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			signals <- sig
			begin := time.Now()
			code := serve(t.Context(), runFunc(func(ctx context.Context) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); !strings.Contains(cause.Error(), sig.String()) {
					t.Errorf("cause %v does not name the signal", cause)
				}
				time.Sleep(3 * time.Second) // the drain
				return nil
			}), signals, zap.NewNop())
			if code != exitOK {
				t.Errorf("exit code %d, want %d", code, exitOK)
			}
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("stopped after %s, did not wait for the drain", took)
			}
		})
	}
}

func TestSecondSignalDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		signals <- syscall.SIGINT
		stuck := make(chan struct{}) // closed once serve has returned: a drain that never ends
		defer close(stuck)
		code := serve(t.Context(), runFunc(func(context.Context) error {
			<-stuck
			return nil
		}), signals, zap.NewNop())
		if code != exitFailure {
			t.Errorf("exit code %d, want %d", code, exitFailure)
		}
	})
}

func TestServerThatCannotServeIsAFailure(t *testing.T) {
	broken := runFunc(func(context.Context) error { return errors.New("address in use") })
	if code := serve(t.Context(), broken, nil, zap.NewNop()); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}
