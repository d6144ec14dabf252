package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// checkHealth asks the proxy at address for a PONG. A demand for authentication is as good an answer: it comes from a
// Redis that is there.
func checkHealth(ctx context.Context, address string, timeout time.Duration) error {
	network, addr, err := splitAddress(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
