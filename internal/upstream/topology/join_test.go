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
	v := &View{Epoch: epoch, OK: true, knows: map[string]bool{}}
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
			v.nodes, v.claims = append(v.nodes, ClusterNode{id, "h:" + id}), append(v.claims, claim)
		}
		v.owner[slot] = uint16(i + 1)
	}
	for id := range strings.SplitSeq(knows, "") {
		if id != "" && !slices.ContainsFunc(v.nodes, func(n ClusterNode) bool { return n.ID == id }) {
			v.replicas = append(v.replicas, ClusterNode{id, "h:" + id})
		}
	}
	return Answer{v, at}
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
	kin := func(at string) Answer { return says(at, 9, "abc", "a7 b8 c9") }
	new3 := func(at string) Answer { return says(at, 3, "xyz", "x1 z3 y2") }
	for name, c := range map[string]struct {
		present *View
		asked   Asked
		answers []Answer
		owners  string
		outcome Outcome
	}{
		"the start":                           {&View{}, AskedSome, []Answer{new3("1")}, "xzy", Settled},
		"nothing new":                         {abc, AskedSome, []Answer{kin("1"), kin("2"), kin("3")}, "abc", Settled},
		"no answer":                           {abc, AskedSome, nil, "abc", Settled},
		"a move":                              {abc, AskedSome, []Answer{says("1", 10, "abc", "b10 b10 c9"), kin("2")}, "bbc", Settled},
		"one does not know a new primary yet": {says("", 9, "abz", "a7 b8 z9").View, AskedAll, []Answer{says("1", 9, "ab", "a7 b8 b8"), says("2", 9, "abz", "a7 b8 z9")}, "abz", Doubtful},

		"a stranger with a greater epoch":            {abc, AskedAll, []Answer{says("1", 1000, "xyz", "x1000 y999 z998"), kin("2"), kin("3")}, "abc", Doubtful},
		"a stranger alone":                           {abc, AskedAll, []Answer{says("1", 1000, "xyz", "x1000 y999 z998")}, "abc", Doubtful},
		"a stranger at two names of one address":     {abc, AskedAll, []Answer{new3("1"), new3("1")}, "abc", Doubtful},
		"all are new":                                {abc, AskedSome, []Answer{new3("1"), new3("2"), new3("3")}, "xzy", Anew},
		"two of three are new":                       {abc, AskedSome, []Answer{new3("1"), new3("2"), kin("3")}, "xzy", Anew},
		"all were reset and know none yet":           {abc, AskedAll, []Answer{says("1", 0, "x", ""), says("2", 0, "y", ""), says("3", 0, "z", "")}, "abc", Doubtful},
		"three of six are new":                       {with, AskedAll, []Answer{new3("1"), new3("2"), new3("3"), kin("4")}, "abc", Doubtful},
		"three of six, and the others do not run":    {with, AskedAll, []Answer{new3("1"), new3("2"), new3("3")}, "xzy", Anew},
		"three of six, and the others are not asked": {with, AskedSome, []Answer{new3("1"), new3("2"), new3("3")}, "abc", Doubtful},

		"a primary was replaced and forgotten":    {abc, AskedSome, []Answer{says("1", 9, "aby", "a7 b8 y1"), says("2", 9, "aby", "a7 b8 y1")}, "aby", Anew},
		"in an older epoch":                       {abc, AskedSome, []Answer{says("1", 8, "aby", "a7 b8 y1"), says("2", 8, "aby", "a7 b8 y1")}, "aby", Anew},
		"one still knows it":                      {abc, AskedAll, []Answer{says("1", 9, "aby", "a7 b8 y1"), says("2", 9, "abcy", "a7 b8 c9")}, "abc", Doubtful},
		"one alone has forgotten it":              {abc, AskedAll, []Answer{says("1", 9, "aby", "a7 b8 y1")}, "abc", Doubtful},
		"a primary was forgotten without an heir": {abc, AskedSome, []Answer{says("1", 9, "ab", "a7 b8"), says("2", 9, "ab", "a7 b8")}, "ab-", Anew},
	} {
		got, outcome := JoinViews(c.present, c.asked, c.answers)
		if owners(got, 3) != c.owners || outcome != c.outcome {
			t.Errorf("%s: %s, %d; want %s, %d", name, owners(got, 3), outcome, c.owners, c.outcome)
		}
	}
}

// One foreign node among three or more changes nothing, and a cluster that is created anew is followed, whatever the
// epochs.
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
			kin = append(kin, answer(fmt.Sprint(i), ids))
			others = append(others, answer(fmt.Sprint(i), "uvwxyz"))
		}
		for _, asked := range []Asked{AskedSome, AskedAll} {
			some := slices.Clone(kin[:1+r.IntN(len(kin)-1)])
			want, _ := JoinViews(present, asked, some)
			at := r.IntN(len(some) + 1)
			if got, _ := JoinViews(present, asked, slices.Insert(slices.Clone(some), at, others[len(ids)-1])); owners(got, slots) != owners(want, slots) {
				t.Fatalf("seed %d: a stranger makes %s of %s", seed, owners(got, slots), owners(want, slots))
			}
			want, _ = JoinViews(&View{}, asked, others)
			if got, outcome := JoinViews(present, asked, others); outcome != Anew || owners(got, slots) != owners(want, slots) {
				t.Fatalf("seed %d: a cluster that is created anew: %s, want %s", seed, owners(got, slots), owners(want, slots))
			}
		}
	}
}
