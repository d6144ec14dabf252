// Package topology knows the Redis servers behind the proxy: which there are, and where each of them is.
//
// One server at a fixed address is Single. The servers of a cluster are in a view that is replaced as a whole (Cluster). Lanes, pins and spare
// connections belong to a Node.
package topology

import (
	"context"
	"fmt"

	"lockproxy/internal/upstream/address"
)

// A Node names one Redis server. The server keeps its name when its address changes.
type Node string

// Any stands for any server; if there is one, for that.
const Any Node = ""

// Single is one server at an address that does not change. Its name is Any.
type Single struct{ network, address string }

// NewSingle returns the topology of one server.
func NewSingle(a address.Address) (*Single, error) {
	if a.Kind != address.Single {
		return nil, fmt.Errorf("%s is not one server", a)
	}
	return &Single{network: a.Servers[0].Network, address: a.Servers[0].Addr}, nil
}

// Resolve returns where a server is now, for net.Dialer. It is asked before every attempt to connect.
func (s *Single) Resolve(context.Context, Node) (network, address string, err error) {
	return s.network, s.address, nil
}
