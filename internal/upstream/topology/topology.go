// Package topology knows the Redis servers behind the proxy: which there are, and where each of them is.
//
// Lanes, pins and spare connections belong to a Node, which keeps its name when the server moves. Single is one server
// at a fixed address. Primary is one server that moves: Sentinels promote another process. Cluster is the nodes of a
// cluster, in a View that is replaced as a whole. An Address is what operators write.
//
// The nodes of a cluster say what they know of it, and refuse commands for slots that they do not serve (Refusal):
//
//	CLUSTER NODES ──ReadNodes──► Told ──Book: addresses for clients──► View
//	CLUSTER SLOTS ──ReadAddresses──► Book, when a server is new
//
// A View never changes. A node's answer may be old. Merge joins views by the epochs that the nodes count, so that no slot
// returns to an owner that it had before.
package topology

import "context"

// A Node names one Redis server. The server keeps its name when its address changes.
type Node string

// Any stands for any server. If there is one, this is its name.
const Any Node = ""

// Place is where a server is at present.
type Place struct {
	Network, Address string // for net.Dialer

	// Primary says that a process which is no primary does not count as the server.
	Primary bool

	// Some says that the place is one of several, each of which will do. So nothing there is ever elsewhere.
	Some bool

	left context.Context // ends when the server is not there any more; nil: it stays
}

// Left reports whether the server is somewhere else by now.
func (p Place) Left() bool { return p.left != nil && p.left.Err() != nil }

// OnLeft has f called from another goroutine when the server moves, unless stop is called before.
func (p Place) OnLeft(f func()) (stop func()) {
	if p.left == nil {
		return func() {}
	}
	withdraw := context.AfterFunc(p.left, f)
	return func() { withdraw() }
}

// Single is one server that serves all keys at an address that does not change.
type Single struct{ place Place }

// NewSingle returns the topology of one server.
func NewSingle(a Address) *Single {
	return &Single{place: Place{Network: a.Servers[0].Network, Address: a.Servers[0].Addr}}
}

// Resolve returns where a server is now. It is asked before every attempt to connect.
func (s *Single) Resolve(Node) (Place, error) { return s.place, nil }

// Doubt says that the server was not found. Its address does not change.
func (s *Single) Doubt(string) {}

// Named finds servers whose names are their TCP addresses, such as Sentinels.
type Named struct{}

// Resolve returns where a server is.
func (Named) Resolve(at Node) (Place, error) { return Place{Network: "tcp", Address: string(at)}, nil }

// Doubt says that a server was not found, which changes nothing.
func (Named) Doubt(string) {}
