package topology

import (
	"maps"
	"slices"
)

// An Answer is the view of one server, and the name under which it was asked.
type Answer struct {
	View  *View
	Asked Node
}

// An Outcome is that of a round of questions.
type Outcome uint8

// Settled: the answers are of one cluster. Doubtful: some speak of other servers, and all should be asked. Anew: the
// cluster is another one at the same addresses, or some of its servers are.
const (
	Settled Outcome = iota
	Doubtful
	Anew
)

// Merge joins a view with the answers of servers.
//
// Epochs are comparable within one cluster only. A stranger, which knows none of our servers, is of another one: it may
// be foreign, or may have been reset. Strangers are the cluster from now on if they are at the addresses of most
// primaries, or at most seeds while no other server answers. A primary that no server knows, while most primaries have
// answered, has been forgotten, whatever its epoch. Else the later owner of each slot counts.
func Merge(present *View, seeds []Node, answers []Answer) (*View, Outcome) {
	var kin, strangers []Answer
	for _, a := range answers {
		if servers := present.Servers(); len(servers) == 0 || a.View.knowsOne(servers) {
			kin = append(kin, a)
		} else {
			strangers = append(strangers, a)
		}
	}
	isSeed := func(at Node) bool { return slices.Contains(seeds, at) }
	if present.isMost(strangers) || len(kin) == 0 && count(strangers, isSeed) > len(seeds)/2 {
		return fold(&View{}, strangers), Anew
	}
	outcome := Settled
	if len(strangers) > 0 {
		outcome = Doubtful
	}
	forgotten := map[string]bool{}
	for _, owner := range present.nodes {
		for _, a := range kin {
			if !a.View.knows[owner.ID] {
				forgotten[owner.ID], outcome = true, Doubtful
			}
		}
	}
	maps.DeleteFunc(forgotten, func(id string, _ bool) bool {
		return slices.ContainsFunc(kin, func(a Answer) bool { return a.View.knows[id] })
	})
	if len(forgotten) > 0 && present.isMost(kin) {
		return fold(present.without(forgotten), kin), Anew
	}
	return fold(present, kin), outcome
}

func (v *View) knowsOne(servers []ClusterNode) bool {
	return slices.ContainsFunc(servers, func(n ClusterNode) bool { return v.knows[n.ID] })
}

// isMost reports whether answers come from most of the primaries' addresses.
func (v *View) isMost(answers []Answer) bool {
	return count(answers, func(at Node) bool { return v.Primary(string(at)) != nil }) > len(v.nodes)/2
}

func count(answers []Answer, is func(at Node) bool) (n int) {
	for _, a := range answers {
		if is(a.Asked) {
			n++
		}
	}
	return n
}

func fold(v *View, answers []Answer) *View {
	for _, a := range answers {
		v = merge(v, a.View)
	}
	return v
}

// without is the view without some primaries. It is older than any answer: each slot has the owner of the greatest
// epoch that is left.
func (v *View) without(ids map[string]bool) *View {
	c := *v
	c.Epoch, c.OK = 0, false
	for slot := range c.owner {
		if owner := v.Owner(slot); owner != nil && ids[owner.ID] {
			c.owner[slot] = 0
		}
	}
	c.tidy()
	return &c
}

// merge joins two views; it is a or b if one of them is not older in any slot. A node may know of the latest epoch, but
// not yet of each slot that has moved. A node that gets a slot configures itself in a greater epoch than the node that
// had it. So of two owners of a slot the one of the greater epoch is the later one.
func merge(a, b *View) *View {
	later, other := a, b
	if b.replaces(a) {
		later, other = b, a
	}
	m := *later
	m.nodes = slices.Concat(later.nodes, other.nodes)
	moved := false
	for slot := range m.owner {
		if other.isLaterIn(slot, later) {
			m.owner[slot] = other.owner[slot] + uint16(len(later.nodes))
			moved = true
		}
	}
	if !moved {
		return later
	}
	m.claims = maps.Clone(later.claims)
	for id, epoch := range other.claims {
		m.claims[id] = max(m.claims[id], epoch)
	}
	m.tidy()
	return &m
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
	mine, theirs := v.Owner(slot), other.Owner(slot)
	if mine == nil || theirs == nil || mine.ID == theirs.ID || mine.ID == other.source {
		return false
	}
	epoch := other.claims[theirs.ID]
	return epoch != 0 && v.claims[mine.ID] > epoch
}

// tidy leaves each primary that has slots once, in the order of their IDs: of two addresses the first one.
func (v *View) tidy() {
	all := v.nodes
	serves := map[string]bool{}
	before := uint16(0)
	for _, i := range v.owner {
		if i != before && i > 0 {
			serves[all[i-1].ID] = true
		}
		before = i
	}
	v.nodes = nil
	for _, n := range all {
		if serves[n.ID] && byID(v.nodes, n.ID) == nil {
			v.nodes = append(v.nodes, n)
		}
	}
	slices.SortFunc(v.nodes, compareIDs)
	place := make([]uint16, len(all)+1)
	for i, n := range all {
		place[i+1] = uint16(1 + slices.IndexFunc(v.nodes, func(m ClusterNode) bool { return m.ID == n.ID }))
	}
	for slot, i := range v.owner {
		v.owner[slot] = place[i]
	}
	v.replicas = slices.DeleteFunc(slices.Clone(v.replicas), func(r ClusterNode) bool { return byID(v.nodes, r.ID) != nil })
}
