package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/cli"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// probe says how to ask the running proxy for its health.
type probe struct {
	target cli.Target
	admin  string // host:port of the server for operators; empty: none
}

// probe picks the listener that is easiest to connect to: a unix socket, then one in the clear, then TLS.
func (c Config) probe() probe {
	effort := func(address string) int {
		switch {
		case strings.HasPrefix(address, "unix:"):
			return 0
		case strings.HasPrefix(address, tlsPrefix):
			return 2
		}
		return 1
	}
	easiest := slices.MinFunc(c.addresses(), func(a, b string) int { return cmp.Compare(effort(a), effort(b)) })
	network, addr, _ := splitAddress(strings.TrimPrefix(easiest, tlsPrefix)) // it has been verified
	p := probe{target: cli.Target{
		Network: network, Addr: addr, Header: effort(easiest) > 0 && c.ProxyProtocol != proxy.ProxyOff,
	}}
	if host, port, err := net.SplitHostPort(c.AdminListen); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		p.admin = net.JoinHostPort(host, port)
	}
	if effort(easiest) == 2 {
		// The answer is no secret, and the certificate need not be for the address of the listener. The
		// proxy's own certificate serves as the client's, where its authority has signed it too.
		p.target.TLS = &tls.Config{InsecureSkipVerify: true}
		if cert, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile); err == nil {
			p.target.TLS.Certificates = []tls.Certificate{cert}
		}
	}
	return p
}

// ready asks the proxy whether it serves clients from Redis: /readyz at the address for operators if there is one.
func (p probe) ready(ctx context.Context) error {
	if p.admin != "" {
		return p.askAdmin(ctx, "/readyz")
	}
	err := cli.Ready(ctx, p.target)
	if err != nil {
		if reason := cli.Outage(ctx, p.target); reason != "" {
			return errors.New("redis is away: " + reason)
		}
	}
	return err
}

// health asks the proxy whether it lives. Redis's state does not matter: a proxy that was restarted while Redis is away
// would only lose its clients.
func (p probe) health(ctx context.Context) error {
	if p.admin != "" {
		return p.askAdmin(ctx, "/healthz")
	}
	return cli.Alive(ctx, p.target)
}

// askAdmin asks the server for operators.
func (p probe) askAdmin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 512))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer to %s: %w", path, err)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s was answered %s: %s", path, answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
