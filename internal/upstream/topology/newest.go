package topology

import "slices"

// NewestView joins two views; it is a or b if one of them is not older in any slot. A node may know of the latest
// epoch, but not yet of each slot that has moved. A node that gets a slot configures itself in a greater epoch than the
// node that had it. So of two owners of a slot the one of the greater epoch is the later one.
func NewestView(a, b *View) *View {
	later, other := a, b
	if b.replaces(a) {
		later, other = b, a
	}
	var joined *View
	for slot := range later.owner {
		if !other.isLaterIn(slot, later) {
			continue
		}
		if joined == nil {
			joined = later.clone()
		}
		joined.give(slot, other)
	}
	if joined == nil {
		return later
	}
	joined.dropIdle()
	return joined
}

// replaces reports whether v is of a later epoch, or of the same and not from a node that sees a worse cluster.
func (v *View) replaces(other *View) bool {
	if v.Epoch != other.Epoch {
		return v.Epoch > other.Epoch
	}
	return v.OK || !other.OK
}

// isLaterIn reports whether the owner of a slot in v is known to be later than that in another view. A node knows best
// which slots it has itself.
func (v *View) isLaterIn(slot int, other *View) bool {
	mine, theirs := v.owner[slot], other.owner[slot]
	if mine == 0 || theirs == 0 || v.nodes[mine-1].ID == other.nodes[theirs-1].ID || v.nodes[mine-1].ID == other.source {
		return false
	}
	return other.claims[theirs-1] != 0 && v.claims[mine-1] > other.claims[theirs-1]
}

func (v *View) clone() *View {
	c := *v
	c.nodes, c.replicas, c.claims = slices.Clone(v.nodes), slices.Clone(v.replicas), slices.Clone(v.claims)
	return &c
}

// give makes the owner of a slot in another view its owner.
func (v *View) give(slot int, of *View) {
	from := of.owner[slot] - 1
	n := of.nodes[from]
	i := slices.IndexFunc(v.nodes, func(known ClusterNode) bool { return known.ID == n.ID })
	if i < 0 {
		i = len(v.nodes)
		v.nodes, v.claims = append(v.nodes, n), append(v.claims, 0)
		v.replicas = slices.DeleteFunc(v.replicas, func(r ClusterNode) bool { return r.ID == n.ID })
	}
	v.claims[i] = max(v.claims[i], of.claims[from])
	v.owner[slot] = uint16(i + 1)
}

// dropIdle leaves the primaries that have slots, in the order of their IDs.
func (v *View) dropIdle() {
	has := make([]bool, len(v.nodes)+1)
	for _, i := range v.owner {
		has[i] = true
	}
	var order []int
	for i := range v.nodes {
		if has[i+1] {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return compareIDs(v.nodes[i], v.nodes[j]) })
	place := make([]uint16, len(v.nodes)+1)
	nodes, claims := make([]ClusterNode, len(order)), make([]uint64, len(order))
	for at, i := range order {
		nodes[at], claims[at], place[i+1] = v.nodes[i], v.claims[i], uint16(at+1)
	}
	for slot, i := range v.owner {
		v.owner[slot] = place[i]
	}
	v.nodes, v.claims = nodes, claims
}
