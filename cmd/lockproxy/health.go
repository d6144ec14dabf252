package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/proxy"
)

// probe says how to ask the running proxy for its health.
type probe struct {
	address string      // host:port or unix:/path
	header  bool        // begin with a PROXY header
	tls     *tls.Config // nil: in the clear
	timeout time.Duration
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
	easiest := slices.MinFunc(c.Listen, func(a, b string) int { return cmp.Compare(effort(a), effort(b)) })
	p := probe{
		address: strings.TrimPrefix(easiest, tlsPrefix),
		header:  effort(easiest) > 0 && c.ProxyProtocol != proxy.ProxyOff,
		timeout: c.DialTimeout,
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

// checkHealth asks the proxy for a PONG. A demand for authentication is as good an answer, because it comes from
// Redis.
func checkHealth(ctx context.Context, p probe) error {
	network, addr, err := splitAddress(p.address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr) // an unspecified host is this machine
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("health: %w", err)
		}
	}
	if p.header { // it names no client
		if _, err := conn.Write([]byte("PROXY UNKNOWN\r\n")); err != nil {
			return fmt.Errorf("health: send the PROXY header: %w", err)
		}
	}
	if p.tls != nil {
		conn = tls.Client(conn, p.tls) // closing the socket is enough
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return fmt.Errorf("health: send PING: %w", err)
	}
	reply, err := bufio.NewReaderSize(conn, 512).ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("health: read the answer to PING: %w", err)
	}
	line := strings.TrimRight(string(reply), "\r\n")
	if line == "+PONG" || strings.HasPrefix(line, "-NOAUTH ") {
		return nil
	}
	return errors.New("health: PING was answered " + line)
}
