package upstream

import (
	"bytes"
	"context"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// An asker asks one server, with the proxy's own credentials.
//
// It asks which commands there are, whether clients need credentials, and which settings may hurt locks or shared
// connections. Each question has a connection of its own.
type asker struct {
	Dialer *dial.Dialer
	Server topology.Node

	// Cluster says that the server should be a node of a cluster.
	Cluster bool

	Own    dial.Identity
	Logger *zap.Logger

	Input  Input     // as Tight has found it; owned by its caller
	limits [2]string // settings of Redis that the log knows; owned by the caller of Tight

	timeouts map[topology.Node]time.Duration // of the nodes of a cluster; 0: not known. Owned by the caller of NodeTimeout, as turn
	turn     int
}

// connect opens a connection with the proxy's own credentials.
func (a *asker) connect(ctx context.Context) (net.Conn, error) {
	return a.Dialer.Dial(ctx, dial.Target{At: a.Server, ID: a.Own})
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

// NeedsAuth asks whether Redis refuses to serve a connection without credentials.
func (a *asker) NeedsAuth(ctx context.Context) (bool, error) {
	nc, err := a.Dialer.Dial(ctx, dial.Target{At: a.Server, ID: dial.Identity{Proto: 2}})
	if err != nil {
		return false, err
	}
	defer a.Dialer.HangUp(nc)
	b, err := a.Dialer.Ask(nc, "PING")
	return isNoAuth(b), err
}

// isNoAuth reports whether a reply says that the connection needs credentials.
func isNoAuth(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-NOAUTH ")) }
