package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/certs"
)

// check is --check: it prints what the log of a start would warn of, and returns the exit code.
func check(ctx context.Context, cmd command, stdout, stderr io.Writer) int {
	warnings := &warnings{out: stderr}
	log := warnings.logger()
	certLog := log
	if cmd.Connect { // tryOut loads them again
		certLog = zap.NewNop()
	}
	if _, err := certs.New(certOptions(cmd.Config, certLog)); err != nil {
		fmt.Fprintln(stderr, "lockproxy:", err)
		return exitUsage
	}
	if cmd.Connect {
		if err := tryOut(ctx, cmd.Config, log); err != nil {
			fmt.Fprintln(stderr, "lockproxy:", err)
			return exitFailure
		}
	}
	if warnings.count > 0 {
		fmt.Fprintf(stdout, "configuration ok, warnings: %d\n", warnings.count)
		return exitOK
	}
	fmt.Fprintln(stdout, "configuration ok")
	return exitOK
}

// tryOut does everything that a start does, except serving clients: it opens the listeners, and asks Redis.
func tryOut(ctx context.Context, cfg Config, log *zap.Logger) error {
	s, err := newServer(cfg, log, nil)
	if err != nil {
		return err
	}
	defer s.abandon()
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	if err := s.proxy.TryOut(ctx); err != nil {
		return fmt.Errorf("redis at %s: %w", cfg.Upstream.Address, err)
	}
	return nil
}

// warnings prints the warnings of a log, for people, and counts them.
type warnings struct {
	out   io.Writer
	count int
}

// logger is the log. One goroutine at a time writes to it.
func (w *warnings) logger() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		MessageKey: "message", ConsoleSeparator: " ", EncodeDuration: zapcore.SecondsDurationEncoder,
	})
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), zap.WarnLevel))
}

// Write takes one entry.
func (w *warnings) Write(entry []byte) (int, error) {
	w.count++
	if _, err := io.WriteString(w.out, "lockproxy: warning: "); err != nil {
		return 0, err
	}
	return w.out.Write(entry)
}

// exposed are the addresses of Listen at which the network can connect without a certificate.
func (c Config) exposed() (list []string) {
	for _, address := range c.Listen {
		plain, secure := strings.CutPrefix(address, tlsPrefix)
		network, addr, err := splitAddress(plain)
		if err != nil || network == "unix" || secure && c.TLS.AuthClients == certs.AuthYes {
			continue
		}
		host, _, _ := net.SplitHostPort(addr) // it has been split before
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			list = append(list, address)
		}
	}
	return list
}
