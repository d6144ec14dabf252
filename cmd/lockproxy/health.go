package main

import (
	"bufio"
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
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
)

// probe says how to ask the running proxy for its health.
type probe struct {
	address string      // host:port or unix:/path
	header  bool        // begin with a PROXY header
	tls     *tls.Config // nil: in the clear
	timeout time.Duration
	admin   string // host:port of the server for operators; empty: none
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
	p := probe{
		address: strings.TrimPrefix(easiest, tlsPrefix),
		header:  effort(easiest) > 0 && c.ProxyProtocol != proxy.ProxyOff,
		timeout: dialTimeout,
	}
	if host, port, err := net.SplitHostPort(c.AdminListen); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		p.admin = net.JoinHostPort(host, port)
	}
	if effort(easiest) == 2 {
		// The answer is no secret, and the certificate need not be for the address of the listener. The
		// proxy's own certificate serves as the client's, where its authority has signed it too.
		p.tls = &tls.Config{InsecureSkipVerify: true}
		if cert, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile); err == nil {
			p.tls.Certificates = []tls.Certificate{cert}
		}
	}
	return p
}

// checkReady asks the proxy whether it serves clients: /readyz at the address for operators if there is one, else for a
// PONG. A demand for authentication is as good an answer, because it comes from Redis.
func checkReady(ctx context.Context, p probe) error {
	if p.admin != "" {
		return p.askAdmin(ctx, "/readyz")
	}
	line, err := p.ask(ctx, "*1\r\n$4\r\nPING\r\n")
	switch {
	case err != nil:
		if reason := p.outage(ctx); reason != "" {
			return errors.New("redis is away: " + reason)
		}
		return err
	case line == "+PONG", strings.HasPrefix(line, "-NOAUTH "):
		return nil
	}
	return errors.New("PING was answered " + line)
}

// checkHealth asks the proxy whether it lives. Redis's state does not matter: a proxy that was restarted while Redis is
// away would only lose its clients.
func checkHealth(ctx context.Context, p probe) error {
	if p.admin != "" {
		return p.askAdmin(ctx, "/healthz")
	}
	// The proxy answers a length that no argument has by itself, and any other command only when Redis has been asked.
	line, err := p.ask(ctx, "*1\r\n$-2\r\n")
	if err == nil && !strings.HasPrefix(line, "-ERR Protocol error") {
		err = errors.New("a protocol error was answered " + line)
	}
	return err
}

// askAdmin asks the server for operators.
func (p probe) askAdmin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
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

// outage is why Redis is away, as the proxy tells without a login; empty: it does not say so.
func (p probe) outage(ctx context.Context) (reason string) {
	_ = p.exchange(ctx, "INFO lockproxy\r\n", func(answer *bufio.Reader) error {
		for {
			line, err := answer.ReadString('\n')
			if text, found := strings.CutPrefix(line, "upstream_error:"); found || err != nil || line == "\r\n" {
				if found {
					reason = strings.TrimSpace(text)
				}
				return err
			}
		}
	})
	return reason
}

// ask sends a request to the address for clients and returns the first line of the answer.
func (p probe) ask(ctx context.Context, request string) (line string, err error) {
	err = p.exchange(ctx, request, func(answer *bufio.Reader) error {
		reply, err := answer.ReadSlice('\n')
		line = strings.TrimRight(string(reply), "\r\n")
		return err
	})
	if err != nil {
		return "", err
	}
	return line, nil
}

// exchange sends a request to the address for clients and has read read the answer.
func (p probe) exchange(ctx context.Context, request string, read func(answer *bufio.Reader) error) error {
	network, addr, err := splitAddress(p.address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr) // an unspecified host is this machine
	if err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("ask the proxy: %w", err)
		}
	}
	if p.header { // it names no client
		if _, err := conn.Write([]byte("PROXY UNKNOWN\r\n")); err != nil {
			return fmt.Errorf("send the PROXY header: %w", err)
		}
	}
	if p.tls != nil {
		conn = tls.Client(conn, p.tls) // closing the socket is enough
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return fmt.Errorf("send the question: %w", err)
	}
	if err := read(bufio.NewReaderSize(conn, 512)); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}
