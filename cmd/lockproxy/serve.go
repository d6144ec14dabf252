package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// server is the interface of the proxy that serve needs. Run serves until ctx ends, then drains, and returns nil; it
// returns early with an error if it cannot serve.
type server interface {
	Run(ctx context.Context) error

	// Hurry ends the waiting of a drain, also of one that has not begun: what follows it is done as usual.
	Hurry()

	// Reload reads the files again that can change while the proxy runs. It may be called while Run runs.
	Reload()
}

// start builds the proxy and serves until a signal has ended it. again loads the configuration again.
func start(ctx context.Context, cfg Config, again func() (Config, error), stderr io.Writer) int {
	log, level, out := newLogger(cfg.Log, stderr)
	defer out.Close(lastEntries)
	// The reader of standard error may go, which ends a process by default. A program that a process starts inherits an
	// ignored signal, but not one that is caught.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	defer zap.RedirectStdLog(log)()    // libraries write to standard error otherwise
	signals := make(chan os.Signal, 2) // serve takes them at once
	// To the end of the process: a late signal must not change the exit code.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	hangups := make(chan os.Signal, 1) // one reload serves all that came before it
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	cfg.warn(log)
	srv, err := newServer(cfg, log, out.Counts)
	if err != nil {
		log.Error("start", zap.Error(err))
		return exitFailure
	}
	srv.level, srv.again = level, again
	return serve(ctx, srv, signals, hangups, log)
}

// A phase is how far the process is on its way to its end. Each signal that counts leads to the next phase.
type phase uint8

const (
	running  phase = iota
	draining       // clients are waited for
	hurrying       // the waiting has ended: locks are released by GRACE, and the last entry of the log is written
	gone           // nothing is waited for
)

// sameSignal is the time for which a signal is a repetition of the one that has counted last: supervisors send it to
// the process and to its group.
const sameSignal = time.Second

// departure is the phase of the process. The zero value is running.
type departure struct {
	phase phase
	since time.Time
}

// signal takes a signal, and reports whether it leads to the next phase.
func (d *departure) signal(now time.Time) bool {
	if d.phase != running && now.Sub(d.since) < sameSignal {
		return false
	}
	d.phase, d.since = d.phase+1, now
	return true
}

// serve runs srv. The first of signals ends its context, upon which it drains. A second one ends the waiting, and a
// third one does not wait for srv at all. Each of hangups reloads until the first one, one after the other. A reload
// that has not ended when srv has is given up.
func serve(ctx context.Context, srv server, signals, hangups <-chan os.Signal, log *zap.Logger) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1) // the result of Run; one slot, so that an abandoned Run can still end
	go func() { ended <- srv.Run(ctx) }()

	var way departure
	reloads, reloaded := hangups, make(chan struct{}, 1) // reloads is nil during a reload
	for {
		select {
		case err := <-ended:
			if err != nil {
				log.Error("serve", zap.Error(err))
				return exitFailure
			}
			return exitOK
		case <-reloads:
			if way.phase != running { // its settings have been read
				log.Warn("not reloaded, the proxy is about to end")
				continue
			}
			reloads = nil
			go func() { // signals count meanwhile: a pipe, or a file of a lost network, may never be read
				srv.Reload()
				reloaded <- struct{}{}
			}()
		case <-reloaded:
			reloads = hangups
		case sig := <-signals:
			if !way.signal(time.Now()) {
				continue
			}
			switch way.phase {
			case draining:
				log.Info("signal", zap.Stringer("signal", sig))
				cancel(fmt.Errorf("signal: %s", sig))
			case hurrying:
				log.Warn("second signal, clients are not waited for", zap.Stringer("signal", sig))
				srv.Hurry()
			case gone:
				log.Warn("third signal, nothing is waited for", zap.Stringer("signal", sig))
				return exitFailure
			case running:
			}
		}
	}
}
