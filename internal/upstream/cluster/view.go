package cluster

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/slots"
)

// A Node is one server of the cluster.
type Node struct {
	ID      string // given by the cluster; it stays when the address changes
	Address string // host:port
}

// A View is what is known of a cluster at one time: which node serves which slot. It is immutable. The zero value knows nothing. Newest joins two.
type View struct {
	Epoch    uint64              // the cluster's current epoch, as the node that was asked knows it
	OK       bool                // that node says that the cluster serves commands
	nodes    []Node              // the primaries with slots, by ID
	replicas []Node              // that answer: the cluster hides failed ones from clients
	copies   map[string]int      // the number of replicas by the ID of their primary, failed ones included; nil: it is not known
	claims   []uint64            // the epochs in which the nodes were configured, in their order; 0: it is not known
	source   string              // ID of the node that has said so; "": it is not known
	owner    [slots.Count]uint16 // index of the slot's node plus one; 0: no node serves it
}

var errView = errors.New("cluster: not an answer to CLUSTER SLOTS")

// Parse makes a view of a node's answers to CLUSTER INFO, CLUSTER NODES and CLUSTER SLOTS. Without nodes, the numbers of replicas are not known. host is the address at which it was asked: a node that does
// not know its own address says so by an empty one. Nodes without a known address are left out, with their slots.
func Parse(info, nodes string, answer resp.Value, host string) (*View, error) {
	copies, epochs, source := readNodes(nodes)
	v := &View{Epoch: infoNumber(info, "cluster_current_epoch"), OK: infoField(info, "cluster_state") == "ok", copies: copies, source: source}
	if answer.Kind != resp.Array || answer.Null {
		return nil, errView
	}
	type span struct {
		from, to int64
		id       string
	}
	var spans []span
	for _, e := range answer.Elems {
		if len(e.Elems) < 3 || e.Elems[0].Kind != resp.Integer || e.Elems[1].Kind != resp.Integer {
			return nil, errView
		}
		s := span{from: e.Elems[0].Int, to: e.Elems[1].Int}
		if s.from < 0 || s.to < s.from || s.to >= slots.Count {
			return nil, errView
		}
		for i, server := range e.Elems[2:] {
			n, ok := parseNode(server, host)
			if !ok {
				continue
			}
			if i == 0 {
				s.id = n.ID
				v.nodes = add(v.nodes, n)
			} else {
				v.replicas = add(v.replicas, n)
			}
		}
		spans = append(spans, s)
	}
	slices.SortFunc(v.nodes, compareIDs)
	for _, n := range v.nodes {
		v.claims = append(v.claims, epochs[n.ID])
	}
	for _, s := range spans {
		i := slices.IndexFunc(v.nodes, func(n Node) bool { return n.ID == s.id })
		for slot := s.from; slot <= s.to; slot++ {
			v.owner[slot] = uint16(i + 1)
		}
	}
	return v, nil
}

func compareIDs(a, b Node) int { return strings.Compare(a.ID, b.ID) }

func add(list []Node, n Node) []Node {
	if slices.ContainsFunc(list, func(known Node) bool { return known.ID == n.ID }) {
		return list
	}
	return append(list, n)
}

// parseNode reads a server in CLUSTER SLOTS: host, port, ID, and more since Redis 7.
func parseNode(v resp.Value, asked string) (n Node, ok bool) {
	if len(v.Elems) < 3 || v.Elems[1].Kind != resp.Integer || len(v.Elems[2].Str) == 0 {
		return n, false
	}
	host, port := string(v.Elems[0].Str), v.Elems[1].Int
	if host == "" { // the node does not know its own address, or prefers the one that was asked
		host, _, _ = net.SplitHostPort(asked)
	}
	if host == "" || host == "?" || port <= 0 || port > 65535 {
		return n, false
	}
	return Node{ID: string(v.Elems[2].Str), Address: net.JoinHostPort(host, strconv.FormatInt(port, 10))}, true
}

// readNodes reads CLUSTER NODES: ID, address, flags, the ID of the primary, two times, the epoch of the configuration. Failed replicas are there, unlike in
// CLUSTER SLOTS. It returns the number of replicas and the epoch by the ID of a primary, and the ID of the node that has answered.
func readNodes(nodes string) (copies map[string]int, epochs map[string]uint64, source string) {
	if nodes == "" {
		return nil, nil, ""
	}
	copies, epochs = map[string]int{}, map[string]uint64{}
	for line := range strings.Lines(nodes) {
		const id, flags, primary, epoch = 0, 2, 3, 6
		f := strings.SplitN(line, " ", epoch+2) // the slots behind them may be many
		if len(f) <= epoch {
			continue
		}
		is := strings.Split(f[flags], ",")
		if slices.Contains(is, "myself") {
			source = f[id]
		}
		if !slices.Contains(is, "slave") {
			epochs[f[id]], _ = strconv.ParseUint(f[epoch], 10, 64)
		} else if f[primary] != "-" {
			copies[f[primary]]++
		}
	}
	return copies, epochs, source
}

// infoField is a field of CLUSTER INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func infoNumber(info, name string) uint64 {
	n, _ := strconv.ParseUint(infoField(info, name), 10, 64)
	return n
}

// Same reports whether two views have the same nodes at the same addresses with the same slots, and the same numbers of replicas.
func (v *View) Same(other *View) bool {
	return v.owner == other.owner && slices.Equal(v.nodes, other.nodes) && slices.Equal(v.replicas, other.replicas) && maps.Equal(v.copies, other.copies)
}

// Nodes are the primaries with slots, in the order of their IDs. The caller must not change them.
func (v *View) Nodes() []Node { return v.nodes }

// Servers are all servers: first the primaries, then the replicas.
func (v *View) Servers() []Node { return slices.Concat(v.nodes, v.replicas) }

// Owner is the node that serves a slot; nil: none.
func (v *View) Owner(slot int) *Node {
	if i := v.owner[slot]; i > 0 {
		return &v.nodes[i-1]
	}
	return nil
}

// Replicas is how many replicas the owner of a slot has, with those that have failed and have not been forgotten. 0: it is not known.
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
func (v *View) At(address string) *Node {
	for _, list := range [][]Node{v.nodes, v.replicas} {
		for i := range list {
			if list[i].Address == address {
				return &list[i]
			}
		}
	}
	return nil
}

// Primary returns the primary with slots that has that ID; nil: there is none.
func (v *View) Primary(id string) *Node { return byID(v.nodes, id) }

// Server returns the server of that ID; nil: there is none.
func (v *View) Server(id string) *Node {
	if n := byID(v.nodes, id); n != nil {
		return n
	}
	return byID(v.replicas, id)
}

func byID(list []Node, id string) *Node {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}
