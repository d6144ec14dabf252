package topology

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

// A ClusterNode is one server of the cluster.
type ClusterNode struct {
	ID      string // given by the cluster; it stays when the address changes
	Address string // host:port
}

// A View is what is known of a cluster at one time: which node serves which slot. It is immutable. The zero value knows
// nothing. Merge joins it with answers.
type View struct {
	Epoch    uint64                 // the cluster's current epoch, as the node that was asked knows it
	OK       bool                   // that node says that the cluster serves commands
	nodes    []ClusterNode          // the primaries with slots, by ID
	replicas []ClusterNode          // those that answer, by ID
	idle     []ClusterNode          // primaries without slots, by ID: slots may be on their way there
	lives    map[string]bool        // the servers, by ID, that the nodes do not take for down
	copies   map[string]int         // how many replicas, by the ID of their primary, failed ones included
	claims   map[string]uint64      // the epochs in which the primaries were configured, by ID; 0: it is not known
	knows    map[string]bool        // the servers, by ID, of which that node has told, whatever their state
	source   string                 // ID of the node that has said so; "": it is not known
	owner    [hashslot.Count]uint16 // index of the slot's node plus one; 0: no node serves it
}

func compareIDs(a, b ClusterNode) int { return strings.Compare(a.ID, b.ID) }

// InfoField is a field in an answer to INFO or CLUSTER INFO; "": it has none.
func InfoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func infoNumber(info, name string) uint64 {
	n, _ := strconv.ParseUint(InfoField(info, name), 10, 64)
	return n
}

// Same reports whether two views have the same nodes at the same addresses with the same slots, the same numbers of
// replicas, and the same servers that are down.
func (v *View) Same(other *View) bool {
	return v.owner == other.owner && slices.Equal(v.nodes, other.nodes) &&
		slices.Equal(v.replicas, other.replicas) && slices.Equal(v.idle, other.idle) &&
		maps.Equal(v.copies, other.copies) && maps.Equal(v.lives, other.lives)
}

// Lives reports whether the nodes do not take a server for down, although it may have no slots. false: it is down, or
// unknown.
func (v *View) Lives(id string) bool { return v.lives[id] }

// Nodes are the primaries with slots, in the order of their IDs. The caller must not change them.
func (v *View) Nodes() []ClusterNode { return v.nodes }

// Servers are all servers: first the primaries, then the replicas.
func (v *View) Servers() []ClusterNode { return slices.Concat(v.nodes, v.replicas) }

// Owner is the node that serves a slot; nil: none.
func (v *View) Owner(slot int) *ClusterNode {
	if i := v.owner[slot]; i > 0 {
		return &v.nodes[i-1]
	}
	return nil
}

// Replicas is how many replicas the owner of a slot has, with those that have failed and have not been forgotten. 0: it
// is not known.
func (v *View) Replicas(slot int) int {
	owner := v.Owner(slot)
	if owner == nil {
		return 0
	}
	return v.copies[owner.ID]
}

// Covered reports whether every slot has a node.
func (v *View) Covered() bool { return !slices.Contains(v.owner[:], 0) }

// At returns the server at an address; nil: the view has none. Only such servers are sent anything.
func (v *View) At(address string) *ClusterNode {
	for _, list := range [][]ClusterNode{v.nodes, v.replicas, v.idle} {
		for i := range list {
			if list[i].Address == address {
				return &list[i]
			}
		}
	}
	return nil
}

// Named returns the server that a refusal of another one names; nil: there is none. Without a host, the refusal means
// that of the server which was asked.
func (v *View) Named(why Refusal, asked Node) *ClusterNode {
	address := why.Address
	if port, hostless := strings.CutPrefix(address, ":"); hostless {
		from := v.Server(string(asked))
		if from == nil {
			return nil
		}
		host, _, _ := net.SplitHostPort(from.Address)
		address = net.JoinHostPort(host, port)
	}
	return v.At(address)
}

// Primary returns the primary with slots that has that ID; nil: there is none.
func (v *View) Primary(id string) *ClusterNode { return byID(v.nodes, id) }

// Server returns the server of that ID; nil: there is none.
func (v *View) Server(id string) *ClusterNode {
	for _, list := range [][]ClusterNode{v.nodes, v.replicas, v.idle} {
		if n := byID(list, id); n != nil {
			return n
		}
	}
	return nil
}

// Heir is the node that serves in a later view what the node of that ID served in this one; nil: none is known.
func (v *View) Heir(id string, later *View) *ClusterNode {
	if n := later.Primary(id); n != nil {
		return n
	}
	for slot := range v.owner {
		if owner := v.Owner(slot); owner != nil && owner.ID == id {
			return later.Owner(slot)
		}
	}
	return nil
}

func byID(list []ClusterNode, id string) *ClusterNode {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}
