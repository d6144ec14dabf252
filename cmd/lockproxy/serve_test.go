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

// fake is a server of functions.
type fake struct {
	run           func(ctx context.Context) error
	hurry, reload func()
}

func (f fake) Run(ctx context.Context) error { return f.run(ctx) }
func (f fake) Hurry()                        { f.hurry() }
func (f fake) Reload()                       { f.reload() }

// untilTold runs until its context ends.
func untilTold(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestFirstSignalDrains(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			signals <- sig
			begin := time.Now()
			code := serve(t.Context(), fake{run: func(ctx context.Context) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); !strings.Contains(cause.Error(), sig.String()) {
					t.Errorf("cause %v does not name the signal", cause)
				}
				time.Sleep(3 * time.Second) // the drain
				return nil
			}}, signals, nil, zap.NewNop())
			if code != exitOK {
				t.Errorf("exit code %d, want %d", code, exitOK)
			}
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("stopped after %s, did not wait for the drain", took)
			}
		})
	}
}

// One signal comes more than once: a supervisor sends it to the process and to its group.
func TestSignalsWithinASecondCountOnce(t *testing.T) {
	type outcome struct {
		code int
		took time.Duration
	}
	const drain, cleanup = time.Minute, 5 * time.Second
	for name, c := range map[string]struct {
		at   []time.Duration
		want outcome
	}{
		"one":                               {[]time.Duration{0}, outcome{exitOK, drain + cleanup}},
		"one, twice":                        {[]time.Duration{0, 200 * time.Microsecond}, outcome{exitOK, drain + cleanup}},
		"one, often":                        {[]time.Duration{0, 0, 300 * time.Millisecond, 999 * time.Millisecond}, outcome{exitOK, drain + cleanup}},
		"two":                               {[]time.Duration{0, time.Second}, outcome{exitOK, time.Second + cleanup}},
		"two, each twice":                   {[]time.Duration{0, 0, 10 * time.Second, 10 * time.Second}, outcome{exitOK, 10*time.Second + cleanup}},
		"two, the last one again in time":   {[]time.Duration{0, 2 * time.Second, 2999 * time.Millisecond}, outcome{exitOK, 2*time.Second + cleanup}},
		"three":                             {[]time.Duration{0, time.Second, 2 * time.Second}, outcome{exitFailure, 2 * time.Second}},
		"three, the first one again before": {[]time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}, outcome{exitFailure, 2 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals, hurried := make(chan os.Signal), make(chan struct{})
			begin := time.Now()
			go func() {
				for i, at := range c.at {
					time.Sleep(at - time.Since(begin))
					signals <- []os.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2]
				}
			}()
			srv := fake{hurry: func() { close(hurried) }, run: func(ctx context.Context) error {
				<-ctx.Done()
				select {
				case <-hurried:
				case <-time.After(drain):
				}
				time.Sleep(cleanup)
				return nil
			}}
			code := serve(t.Context(), srv, signals, nil, zap.NewNop())
			if got := (outcome{code, time.Since(begin)}); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			time.Sleep(drain + cleanup) // a server that was not waited for ends, too
		})
	}
}

func TestServerThatCannotServeIsAFailure(t *testing.T) {
	broken := fake{run: func(context.Context) error { return errors.New("address in use") }}
	if code := serve(t.Context(), broken, nil, nil, zap.NewNop()); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}

func TestHangupReloadsAndServesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangups, signals := make(chan os.Signal), make(chan os.Signal)
		n := 0
		srv := fake{run: untilTold, reload: func() { n++ }}
		code := make(chan int)
		go func() { code <- serve(t.Context(), srv, signals, hangups, zap.NewNop()) }()
		hangups <- syscall.SIGHUP
		hangups <- syscall.SIGHUP
		synctest.Wait()
		signals <- syscall.SIGTERM
		if got := <-code; got != exitOK || n != 2 {
			t.Errorf("exit code %d after %d reloads", got, n)
		}
	})
}

// A file may never be read to its end: a pipe, or a file of a lost network.
func TestAReloadThatHangsDelaysNoSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangups, signals, readable := make(chan os.Signal, 1), make(chan os.Signal), make(chan struct{})
		defer close(readable)
		srv := fake{run: untilTold, reload: func() { <-readable }}
		code := make(chan int, 1)
		go func() { code <- serve(t.Context(), srv, signals, hangups, zap.NewNop()) }()
		hangups <- syscall.SIGHUP
		synctest.Wait()
		hangups <- syscall.SIGHUP // waits for the first one
		select {
		case signals <- syscall.SIGTERM:
		case <-time.After(time.Minute):
			t.Fatal("SIGTERM is not served")
		}
		if got := <-code; got != exitOK {
			t.Errorf("exit code %d", got)
		}
	})
}

func TestHangupDuringTheDrainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangups, signals, drained := make(chan os.Signal), make(chan os.Signal), make(chan struct{})
		n := 0
		srv := fake{reload: func() { n++ }, run: func(context.Context) error {
			<-drained
			return nil
		}}
		code := make(chan int)
		go func() { code <- serve(t.Context(), srv, signals, hangups, zap.NewNop()) }()
		signals <- syscall.SIGTERM
		hangups <- syscall.SIGHUP
		close(drained)
		if got := <-code; got != exitOK || n != 0 {
			t.Errorf("exit code %d after %d reloads", got, n)
		}
	})
}
