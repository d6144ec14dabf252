package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
)

// server is the interface of the proxy that serve needs. Run serves until ctx ends, then drains, and returns nil; it returns early
// with an error if it cannot serve.
type server interface {
	Run(ctx context.Context) error

	// Reload reads the files again that can change while the proxy runs. It may be called while Run runs.
	Reload()
}

// start builds the proxy and serves until a signal has ended it. again loads the configuration again.
func start(ctx context.Context, cfg Config, again func() (Config, error), stderr io.Writer) int {
	log, form := newLogger(cfg.Log, stderr)
	signals := make(chan os.Signal, 2) // one signal drains, the second one kills
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // one reload serves all that came before it
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	srv, err := newServer(cfg, log)
	if err != nil {
		log.Error("start", zap.Error(err))
		return exitFailure
	}
	srv.form, srv.again = form, again
	return serve(ctx, srv, signals, hangups, log)
}

// serve runs srv. The first of signals ends its context, upon which it drains; a second one does not wait for that. Each of
// hangups reloads until then, one after the other. A reload that has not ended when srv has is given up.
func serve(ctx context.Context, srv server, signals, hangups <-chan os.Signal, log *zap.Logger) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1) // the result of Run; one slot, so that an abandoned Run can still end
	go runServer(ctx, srv, ended)

	draining := false
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
			if draining { // its settings have been read
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
			if draining {
				log.Warn("second signal, not waiting for the drain", zap.Stringer("signal", sig))
				return exitFailure
			}
			draining = true
			log.Info("signal", zap.Stringer("signal", sig))
			cancel(fmt.Errorf("signal: %s", sig))
		}
	}
}

func runServer(ctx context.Context, srv server, ended chan<- error) {
	ended <- srv.Run(ctx)
}
