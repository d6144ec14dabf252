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
		fmt.Fprintln(stderr, behind("lockproxy: ", err))
		return exitUsage
	}
	cmd.warn(log)
	if cmd.Connect {
		if err := tryOut(ctx, cmd.Config, log); err != nil {
			fmt.Fprintln(stderr, behind("lockproxy: ", err))
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
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
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
	for _, address := range c.addresses() {
		plain, secure := strings.CutPrefix(address, tlsPrefix)
		network, addr, err := splitAddress(plain)
		if err != nil || network == "unix" || secure && c.TLS.AuthClients == certs.AuthYes {
			continue
		}
		host, _, _ := net.SplitHostPort(addr) // it has been split before
		if !loopback(host) {
			list = append(list, address)
		}
	}
	return list
}

// loopback reports whether only this machine reaches a host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// warn logs what is allowed and seldom meant.
func (c Config) warn(log *zap.Logger) {
	host, _, _ := net.SplitHostPort(c.AdminListen) // it has been verified
	if c.AdminPprof && host != "" && !loopback(host) {
		log.Warn("every host that reaches admin-listen can take profiles, which slow the proxy down",
			zap.String("admin-listen", c.AdminListen))
	}
}

// ownAddress is the address of Listen that an upstream address leads to; empty: there is none.
func (c Config) ownAddress(upstream string) string {
	network, addr, err := splitAddress(upstream)
	if err != nil {
		return ""
	}
	host, port, _ := net.SplitHostPort(addr)
	for _, address := range c.addresses() {
		ownNetwork, own, err := splitAddress(strings.TrimPrefix(address, tlsPrefix))
		if err != nil || ownNetwork != network {
			continue
		}
		if own == addr && port != "0" {
			return address
		}
		ownHost, ownPort, _ := net.SplitHostPort(own)
		ip := net.ParseIP(ownHost)
		everywhere := ownHost == "" || ip != nil && ip.IsUnspecified()
		if network == "tcp" && port == ownPort && port != "0" && loopback(host) && (everywhere || ownHost == host) {
			return address
		}
	}
	return ""
}
