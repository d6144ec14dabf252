package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// An asker asks Redis, with the proxy's own credentials.
//
// It asks which commands there are, whether clients need credentials, and which settings may hurt locks or shared
// connections. Each question has a connection of its own.
type asker struct {
	Dialer  *dial.Dialer
	Cluster bool // Redis should be a node of a cluster
	Own     dial.Identity
	Logger  *zap.Logger

	known     [4]string     // settings that the log knows; owned by the caller of Limits, as the next one
	downAfter time.Duration // see limits
}

// connect opens a connection with the proxy's own credentials.
func (a *asker) connect(ctx context.Context) (net.Conn, error) {
	return a.Dialer.Dial(ctx, dial.Target{At: topology.Any, ID: a.Own})
}

// Commands asks for the table of commands. A Redis that cannot list its commands has those of the built-in table.
func (a *asker) Commands(ctx context.Context) (*commands.Table, error) {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer a.Dialer.HangUp(nc)
	b, err := a.Dialer.Ask(nc, "COMMAND")
	if err != nil {
		return nil, err
	}
	if len(b) > 0 && b[0] == '-' {
		return nil, &dial.RefusedError{Reply: string(b[1 : len(b)-2])}
	}
	t, err := commands.Parse(b)
	if err != nil || t.Lookup("get") == nil {
		return commands.BuiltIn(), nil //nolint:nilerr // see above
	}
	return t, nil
}

// NeedsAuth asks whether a server refuses to serve a connection without credentials.
func (a *asker) NeedsAuth(ctx context.Context, at topology.Node) (bool, error) {
	nc, err := a.Dialer.Dial(ctx, dial.Target{At: at, ID: dial.Identity{Proto: 2}})
	if err != nil {
		return false, err
	}
	defer a.Dialer.HangUp(nc)
	return a.Dialer.Connections().Locked(nc), nil
}

// isNoAuth reports whether a reply says that the connection needs credentials.
func isNoAuth(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-NOAUTH ")) }

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
	if line, err = ask("PERSIST", probeKey); err != nil {
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
