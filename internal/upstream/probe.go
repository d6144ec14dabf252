package upstream

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// errReplica says that Redis would refuse writes.
var errReplica = errors.New("redis is a replica")

// Probe asks Redis, on a connection of its own, whether it answers and takes writes. An error for missing rights or
// missing credentials of the proxy's own user counts as a good answer.
func (a *asker) Probe(ctx context.Context) error {
	nc, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer a.Dialer.HangUp(nc)
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // ends the questions
	ask := func(args ...string) (string, error) {
		reply, err := a.Dialer.Ask(nc, args...)
		return string(bytes.TrimSpace(reply)), err
	}
	line, err := ask("PING")
	switch {
	case err != nil:
		return err
	case line != "+PONG" && !isDenied(line):
		return &dial.RefusedError{Reply: strings.TrimPrefix(line, "-")}
	}
	// Redis refuses a write that changes nothing for the same reasons as other writes: it is a replica, there are too
	// few replicas, the disk is full.
	if line, err = ask("PERSIST", "lockproxy:probe"); err != nil {
		return err
	}
	code, _, _ := strings.Cut(line, " ")
	switch code {
	case "-LOADING", "-MASTERDOWN", "-READONLY", "-NOREPLICAS", "-MISCONF", "-CLUSTERDOWN", "-BUSY":
		return &dial.RefusedError{Reply: line[1:]}
	case "-NOPERM":
		if line, err = ask("ROLE"); err != nil {
			return err
		}
		if strings.HasPrefix(line, "*5\r\n$5\r\nslave") {
			return errReplica
		}
	}
	return nil
}

// isDenied reports whether Redis does not tell this user.
func isDenied(line string) bool {
	return strings.HasPrefix(line, "-NOAUTH ") || strings.HasPrefix(line, "-NOPERM ")
}
