package topology

import (
	"slices"
)

// An Answer is the view of one server, and the address at which it was asked.
type Answer struct {
	View    *View
	Address string
}

// Asked says which servers of a view were asked.
type Asked uint8

// AskedSome suffice while nothing has changed.
const (
	AskedSome Asked = iota
	AskedAll
)

// An Outcome is that of a round of questions.
type Outcome uint8

// Settled: the answers are of one cluster. Doubtful: some speak of other servers, and all should be asked. Anew: the
// cluster is another one at the same addresses, or some of its servers are.
const (
	Settled Outcome = iota
	Doubtful
	Anew
)

// JoinViews joins a view with the answers of servers to whom it belongs.
//
// Epochs are comparable within one cluster only. Nodes that share no ID belong to different ones: one at the address of
// a server may be foreign, or may have been reset. Such a stranger is not heard alone. Strangers that know each other
// are the cluster from now on if they are at most of the addresses, or at the addresses of most primaries while no
// other server answers. A primary that no server knows any more, most of which have answered, has been forgotten,
// whatever its epoch.
func JoinViews(present *View, asked Asked, answers []Answer) (*View, Outcome) {
	answers = distinct(answers)
	servers := present.Servers()
	kin, strangers := answers, []Answer(nil)
	if len(servers) > 0 {
		kin, strangers = related(answers, servers)
	}
	group := largest(strangers)
	if len(group) > len(servers)/2 || asked == AskedAll && len(kin) == 0 && len(group) > len(present.nodes)/2 {
		return fold(&View{}, group), Anew
	}
	outcome := Settled
	if len(strangers) > 0 {
		outcome = Doubtful
	}
	forgotten := map[string]bool{}
	for _, owner := range present.nodes {
		switch n := knowing(kin, owner.ID); {
		case n == len(kin):
		case n == 0 && len(kin) > len(servers)/2:
			forgotten[owner.ID] = true
		default:
			outcome = Doubtful
		}
	}
	if len(forgotten) > 0 {
		return fold(present.without(forgotten), kin), Anew
	}
	return fold(present, kin), outcome
}

// distinct leaves the last answer from each address.
func distinct(answers []Answer) (all []Answer) {
	for i, a := range answers {
		if !slices.ContainsFunc(answers[i+1:], func(b Answer) bool { return b.Address == a.Address }) {
			all = append(all, a)
		}
	}
	return all
}

// related divides answers into those that know one of some servers, and the others.
func related(answers []Answer, servers []ClusterNode) (kin, strangers []Answer) {
	for _, a := range answers {
		if slices.ContainsFunc(servers, func(n ClusterNode) bool { return a.View.knows[n.ID] }) {
			kin = append(kin, a)
		} else {
			strangers = append(strangers, a)
		}
	}
	return kin, strangers
}

// largest is the largest group of answers of which each shares a server with the same one.
func largest(answers []Answer) (group []Answer) {
	for _, one := range answers {
		var others []Answer
		for _, a := range answers {
			for id := range one.View.knows {
				if a.View.knows[id] {
					others = append(others, a)
					break
				}
			}
		}
		if len(others) > len(group) {
			group = others
		}
	}
	return group
}

// knowing is the number of answers that know a server.
func knowing(answers []Answer, id string) (n int) {
	for _, a := range answers {
		if a.View.knows[id] {
			n++
		}
	}
	return n
}

func fold(v *View, answers []Answer) *View {
	for _, a := range answers {
		v = NewestView(v, a.View)
	}
	return v
}

// without is the view without some primaries. It is older than any answer: each slot has the owner of the greatest
// epoch that is left.
func (v *View) without(ids map[string]bool) *View {
	c := v.clone()
	c.Epoch, c.OK = 0, false
	for slot := range c.owner {
		if owner := c.Owner(slot); owner != nil && ids[owner.ID] {
			c.owner[slot] = 0
		}
	}
	c.dropIdle()
	return c
}

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
