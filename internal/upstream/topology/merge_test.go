package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// says is the answer of a server: the ids of those that it knows, and the owners of the first slots with their epochs:
// "a7 b8". Each id is a letter.
func says(at string, epoch uint64, knows, owners string) Answer {
	v := &View{Epoch: epoch, OK: true, knows: map[string]bool{}, claims: map[string]uint64{}}
	for id := range strings.SplitSeq(knows, "") {
		v.knows[id] = true
	}
	for slot, word := range strings.Fields(owners) {
		id := word[:1]
		i := slices.IndexFunc(v.nodes, func(n ClusterNode) bool { return n.ID == id })
		if i < 0 {
			i = len(v.nodes)
			var claim uint64
			_, _ = fmt.Sscan(word[1:], &claim)
			v.nodes, v.claims[id] = append(v.nodes, ClusterNode{id, "h:" + id}), claim
		}
		v.owner[slot] = uint16(i + 1)
	}
	for id := range strings.SplitSeq(knows, "") {
		if id != "" && !slices.ContainsFunc(v.nodes, func(n ClusterNode) bool { return n.ID == id }) {
			v.replicas = append(v.replicas, ClusterNode{id, "h:" + id})
		}
	}
	return Answer{v, Node(at)}
}

// owners are those of the first slots.
func owners(v *View, n int) string {
	var all []string
	for slot := range n {
		id := "-"
		if owner := v.Owner(slot); owner != nil {
			id = owner.ID
		}
		all = append(all, id)
	}
	return strings.Join(all, "")
}

func TestAnswersAreJoinedByTheClusterToWhichTheyBelong(t *testing.T) {
	abc := says("", 9, "abc", "a7 b8 c9").View
	with := says("", 9, "abcdef", "a7 b8 c9").View // d, e and f are replicas
	seeds := []Node{"1", "2", "3"}
	kin := func(at string) Answer { return says(at, 9, "abc", "a7 b8 c9") }
	new3 := func(at string) Answer { return says(at, 3, "xyz", "x1 z3 y2") }
	for name, c := range map[string]struct {
		present *View
		answers []Answer
		owners  string
		outcome Outcome
	}{
		"the start":                           {&View{}, []Answer{new3("1")}, "xzy", Settled},
		"nothing new":                         {abc, []Answer{kin("a"), kin("b"), kin("c")}, "abc", Settled},
		"no answer":                           {abc, nil, "abc", Settled},
		"a move":                              {abc, []Answer{says("a", 10, "abc", "b10 b10 c9"), kin("b")}, "bbc", Settled},
		"one does not know a new primary yet": {says("", 9, "abz", "a7 b8 z9").View, []Answer{says("a", 9, "ab", "a7 b8 b8"), says("b", 9, "abz", "a7 b8 z9")}, "abz", Doubtful},
		"a primary is dead, and a node is behind": {says("", 9, "abcd", "d9 b8 c7").View, []Answer{says("b", 9, "abcd", "a3 b8 c7"), says("c", 9, "abcd", "a3 b8 c7")}, "dbc", Settled},

		"a stranger with a greater epoch":         {abc, []Answer{says("a", 1000, "xyz", "x1000 y999 z998"), kin("b"), kin("c")}, "abc", Doubtful},
		"a stranger alone":                        {abc, []Answer{says("a", 1000, "xyz", "x1000 y999 z998")}, "abc", Doubtful},
		"it is a seed as well":                    {abc, []Answer{new3("a"), new3("1")}, "abc", Doubtful},
		"all are new":                             {abc, []Answer{new3("a"), new3("b"), new3("c")}, "xzy", Anew},
		"two of three are new":                    {abc, []Answer{new3("a"), new3("b"), kin("c")}, "xzy", Anew},
		"all were reset and know none yet":        {abc, []Answer{says("a", 0, "x", ""), says("b", 0, "y", ""), says("c", 0, "z", "")}, "---", Anew},
		"the replicas are new":                    {with, []Answer{new3("d"), new3("e"), new3("f"), kin("a")}, "abc", Doubtful},
		"the replicas do not run":                 {with, []Answer{new3("a"), new3("b"), new3("c")}, "xzy", Anew},
		"it is at other addresses":                {abc, []Answer{new3("1"), new3("3")}, "xzy", Anew},
		"and so is a server of before":            {abc, []Answer{new3("1"), new3("3"), kin("b")}, "abc", Doubtful},
		"a primary was replaced and forgotten":    {abc, []Answer{says("a", 9, "aby", "a7 b8 y1"), says("b", 9, "aby", "a7 b8 y1")}, "aby", Anew},
		"in an older epoch":                       {abc, []Answer{says("a", 8, "aby", "a7 b8 y1"), says("c", 8, "aby", "a7 b8 y1")}, "aby", Anew},
		"one still knows it":                      {abc, []Answer{says("a", 9, "aby", "a7 b8 y1"), says("b", 9, "abcy", "a7 b8 c9")}, "abc", Doubtful},
		"one alone has forgotten it":              {abc, []Answer{says("a", 9, "aby", "a7 b8 y1")}, "abc", Doubtful},
		"a primary was forgotten without an heir": {abc, []Answer{says("a", 9, "ab", "a7 b8"), says("b", 9, "ab", "a7 b8")}, "ab-", Anew},
	} {
		got, outcome := Merge(c.present, seeds, c.answers)
		if owners(got, 3) != c.owners || outcome != c.outcome {
			t.Errorf("%s: %s, %d; want %s, %d", name, owners(got, 3), outcome, c.owners, c.outcome)
		}
	}
}

// In random clusters, one foreign node among three or more changes nothing, and a cluster that is created anew is followed, whatever the epochs.
func TestStrangersInRandomClusters(t *testing.T) {
	const slots = 6
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		answer := func(at, ids string) Answer {
			var words []string
			claims := map[byte]int{}
			for i := range len(ids) {
				claims[ids[i]] = r.IntN(20)
			}
			for range slots {
				id := ids[r.IntN(len(ids))]
				words = append(words, fmt.Sprint(string(id), claims[id]))
			}
			return says(at, r.Uint64N(20), ids, strings.Join(words, " "))
		}
		ids := "abcdefg"[:3+r.IntN(4)]
		present := answer("", ids).View
		var kin, others []Answer
		for i := range len(ids) {
			kin = append(kin, answer(ids[i:i+1], ids))
			others = append(others, answer(ids[i:i+1], "uvwxyz"))
		}
		if len(present.nodes) > 2 {
			some := slices.Clone(kin[:1+r.IntN(len(kin)-1)])
			want, _ := Merge(present, nil, some)
			at := r.IntN(len(some) + 1)
			if got, _ := Merge(present, nil, slices.Insert(slices.Clone(some), at, others[len(ids)-1])); owners(got, slots) != owners(want, slots) {
				t.Fatalf("seed %d: a stranger makes %s of %s", seed, owners(got, slots), owners(want, slots))
			}
		}
		want, _ := Merge(&View{}, nil, others)
		if got, outcome := Merge(present, nil, others); outcome != Anew || owners(got, slots) != owners(want, slots) {
			t.Fatalf("seed %d: a cluster that is created anew: %s, want %s", seed, owners(got, slots), owners(want, slots))
		}
	}
}
