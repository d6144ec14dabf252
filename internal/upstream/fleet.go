package upstream

import (
	"context"
	"net"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// This file has the servers of a cluster as a client library sees them that finds the server of each key itself.

// Fleet is the servers of a cluster. All fields are required. Its methods may be called from any goroutine.
type Fleet struct {
	Cluster  *topology.Cluster
	Views    *Refresher
	Dialer   *dial.Dialer
	Commands func() *commands.Table
}

// View is the cluster as it is known at present.
func (f *Fleet) View() *topology.View { return f.Cluster.View() }

// Watch has told called from another goroutine whenever the view has changed, until stop is called. told must not
// block.
func (f *Fleet) Watch(told func()) (stop func()) { return f.Cluster.Watch(told) }

// Refresh has then called from another goroutine when the view has been refreshed, by a question that has begun after
// this call. hint is a server that should know of a change; Any: none. then may be nil.
func (f *Fleet) Refresh(hint topology.Node, then func()) { f.Views.Ask(hint, then) }

// Connect opens a bare connection to a server for a client library that does its own handshake.
func (f *Fleet) Connect(ctx context.Context, at topology.Node) (net.Conn, error) {
	return f.Dialer.Connect(ctx, at)
}

// Sharded reports whether the servers know shard channels, as Redis 7.0 and later does.
func (f *Fleet) Sharded() bool { return f.Commands().Lookup("spublish") != nil }
