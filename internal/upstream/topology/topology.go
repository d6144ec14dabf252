// Package topology knows the Redis servers behind the proxy: which of them serves a key, and where each of them is.
//
// One server serves all keys today (Single). Sentinel would differ in Resolve: the server of that name moves. Cluster would differ in
// For: the key's hash slot decides. Lanes, pins and spare connections belong to a Node, so neither would change them.
package topology

import (
	"context"
	"fmt"

	"lockproxy/internal/upstream/address"
)

// A Node names one Redis server. The server keeps its name when its address changes.
type Node string

// Single is one server that serves all keys at an address that does not change.
type Single struct {
	node             Node
	network, address string
}

// NewSingle returns the topology of one server.
func NewSingle(a address.Address) (*Single, error) {
	if a.Kind != address.Single {
		return nil, fmt.Errorf("%s is not one server", a)
	}
	return &Single{node: Node(a.String()), network: a.Servers[0].Network, address: a.Servers[0].Addr}, nil
}

// For returns the server that serves a key. Nil asks for any server.
func (s *Single) For([]byte) Node { return s.node }

// Resolve returns where a server is now, for net.Dialer. It is asked before every attempt to connect.
func (s *Single) Resolve(context.Context, Node) (network, address string, err error) {
	return s.network, s.address, nil
}
