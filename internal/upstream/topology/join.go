package topology

import "slices"

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
