package sentinel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// voices reads answers: "1a:bc" is that of a voter: epoch 1, primary a, replicas b and c. A ~ in front marks one that
// does not vote.
func voices(words string) (all []voice) {
	for word := range strings.FieldsSeq(words) {
		word, learnt := strings.CutPrefix(word, "~")
		head, replicas, _ := strings.Cut(word, ":")
		epoch, err := strconv.ParseInt(head[:len(head)-1], 10, 64)
		if err != nil {
			panic(err)
		}
		v := voice{Answer{Epoch: epoch, Addr: head[len(head)-1:]}, !learnt}
		if replicas != "" {
			v.Others = strings.Split(replicas, "")
		}
		all = append(all, v)
	}
	return all
}

func TestElect(t *testing.T) {
	const soon, later = time.Second, agreedFor
	for _, c := range []struct {
		name    string
		present view
		before  string // answers that were given first
		after   time.Duration
		answers string
		refuted bool
		want    proposal
	}{
		{"nothing is known", view{}, "", 0, "", false, proposal{}},
		{"the first answer", view{}, "", 0, "0a", false, proposal{view: view{0, "a"}}},
		{"the majority wins at the start", view{}, "", 0, "1000x 1a 1a", false, proposal{view: view{1, "a"}}},
		{"the greatest epoch wins at the start where none has the majority", view{}, "", 0, "2b ~1a ~1a", false, proposal{view: view{2, "b"}}},
		{"no Sentinel answers", view{2, "b"}, "2b 2b 2b", later, "", false, proposal{view: view{2, "b"}}},

		{"a failover of which the leader tells first", view{1, "a"}, "1a:b 1a:b 1a:b", 0, "1a:b 2b:a 1a:b", false, proposal{view: view{1, "a"}}},
		{"then another one", view{1, "a"}, "1a:b 1a:b 1a:b", 0, "2b:a 2b:a 1a:b", false, proposal{view: view{2, "b"}}},
		{"the leader alone is left", view{1, "a"}, "1a:b 1a:b 1a:b", 0, "2b:a", false, proposal{view{2, "b"}, risen}},
		{"the leader and one other are left", view{1, "a"}, "1a:b 1a:b 1a:b", 0, "2b:a 1a:b", false, proposal{view{2, "b"}, risen}},
		{"a learnt leader alone is left", view{1, "a"}, "1a:b 1a:b 1a:b", 0, "~2b:a", false, proposal{view{2, "b"}, risen}},
		{"the same address with a greater epoch", view{1, "a"}, "1a", 0, "3a 3a 1a", false, proposal{view: view{3, "a"}}},

		{"a stranger against two", view{1, "a"}, "1a:b 1a:b 1a:b", later, "1000x 1a:b 1a:b", false, proposal{view: view{1, "a"}}},
		{"a stranger against one", view{1, "a"}, "1a:b 1a:b 1a:b", later, "1000x 1a:b", false, proposal{view: view{1, "a"}}},
		{"a stranger alone", view{1, "a"}, "1a:b 1a:b 1a:b", later, "1000x", false, proposal{view: view{1, "a"}}},
		{"two learnt strangers against two", view{1, "a"}, "1a:b 1a:b 1a:b", later, "~1000x ~1000x 1a:b 1a:b", false, proposal{view: view{1, "a"}}},
		{"one that names a replica against two", view{1, "a"}, "1a:b 1a:b 1a:b", later, "1000b 1a:b 1a:b", false, proposal{view: view{1, "a"}}},
		{"two against one, at once", view{1000, "x"}, "1000x", 0, "1000x 1a:b 1a:b", false, proposal{view: view{1000, "x"}}},
		{"two against one, which names a server of which they know nothing", view{1000, "x"}, "1000x 1a:b 1a:b", later, "1000x 1a:b 1a:b", false, proposal{view{1, "a"}, risen}},
		{"two against one, which names a replica", view{2, "b"}, "2b:a 1a:b 1a:b", later, "2b:a 1a:b 1a:b", false, proposal{view{1, "a"}, fallen}},
		{"the stranger has raised the epoch", view{1, "a"}, "1000a:b 1a:b 1a:b", 0, "1a:b 1a:b", false, proposal{view: view{1, "a"}}},

		{"they were set up anew with another primary", view{7, "a"}, "7a 0c 0c", soon, "0c 0c 0c", false, proposal{view: view{7, "a"}}},
		{"for some seconds", view{7, "a"}, "0c 0c 0c", later, "0c 0c 0c", false, proposal{view{0, "c"}, risen}},
		{"with two primaries", view{7, "a"}, "0c 0c 0d", later, "0c 0c 0d", false, proposal{view{0, "c"}, risen}},
		{"with no majority", view{7, "a"}, "0c 0d", later, "0c 0d", false, proposal{view: view{7, "a"}}},
		{"another one than before", view{7, "a"}, "0d 0d 0c", later, "0c 0c 0d", false, proposal{view: view{7, "a"}}},
		{"learnt ones do not vote", view{7, "a"}, "0c ~0c ~0c", later, "0c ~0c ~0c", false, proposal{view: view{7, "a"}}},
		{"learnt ones that name the present one noteReplicas", view{7, "a"}, "0c 0c ~7a ~7a", later, "0c 0c ~7a ~7a", false, proposal{view: view{7, "a"}}},
		{"the process has said that it is no primary", view{7, "a"}, "7a 7a", 0, "0c 0c", true, proposal{view{0, "c"}, risen}},
		{"but they are no majority", view{7, "a"}, "7a", 0, "0c", true, proposal{view: view{7, "a"}}},
		{"and one does not know it", view{7, "a"}, "7a 7a", 0, "7a 0c:a 0c:a", true, proposal{view{0, "c"}, fallen}},
		{"an older epoch of a replica", view{2, "b"}, "2b:a 2b:a", 0, "1a:b", false, proposal{view: view{2, "b"}}},
	} {
		e, now := election{}, time.Now()
		e.follow(c.present)
		e.judge(now, voices(c.before), 2, false)
		if got := e.judge(now.Add(c.after), voices(c.answers), 2, c.refuted); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheOnlySentinelOfTheConfigurationIsFollowed(t *testing.T) {
	e, now := election{}, time.Now()
	e.follow(view{7, "a"})
	e.judge(now, voices("7a:b"), 1, false)
	if got := e.judge(now, voices("8x"), 1, false); got != (proposal{view: view{8, "x"}}) {
		t.Errorf("a greater epoch: %v", got)
	}
	e.judge(now, voices("0x"), 1, false)
	if got := e.judge(now.Add(agreedFor), voices("0x"), 1, false); got != (proposal{view{0, "x"}, risen}) {
		t.Errorf("an older epoch: %v", got)
	}
	if got := e.judge(now.Add(2*agreedFor), voices("8x ~7a ~7a"), 1, false); got.addr != "a" {
		t.Errorf("two others name the present one: %v", got)
	}
}

func TestAPromotionIsBelieved(t *testing.T) {
	e := election{}
	e.follow(view{1, "a"})
	e.judge(time.Now(), voices("1a:bc"), 1, false)
	for _, c := range []struct {
		replica, primary string
		configured, want bool
	}{
		{"b", "a", false, true},
		{"n", "a", true, true}, // a replica that is not listed yet
		{"n", "a", false, false},
		{"n", "x", true, false},
		{"b", "x", false, true},
	} {
		if got := e.believes(c.replica, c.primary, c.configured); got != c.want {
			t.Errorf("%+v: believed %v", c, got)
		}
	}
	e.follow(view{1, "b"})
	if !e.believes("c", "a", true) || !e.believes("a", "b", false) || e.kin["b"] {
		t.Errorf("after a move the kin is %v", e.kin)
	}
}

// In histories of random answers, a majority that lives is never left for another word, no server is followed that
// neither a majority nor the Sentinels of the present primary know, and whatever has been said, a majority with a
// primary is followed in the end.
func TestElectionsInRandomHistories(t *testing.T) {
	servers := strings.Split("abcxy", "")
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		sentinels := 1 + r.IntN(5)
		majority := sentinels/2 + 1
		e, now := election{}, time.Now()
		roles := map[string]bool{}
		speak := func() (all []voice) {
			for i := range sentinels + r.IntN(3) {
				if r.IntN(4) == 0 {
					continue // it does not answer
				}
				v := voice{Answer{Epoch: r.Int64N(4) * r.Int64N(500), Addr: servers[r.IntN(len(servers))]}, i < sentinels}
				for _, s := range servers {
					if s != v.Addr && r.IntN(3) == 0 {
						v.Others = append(v.Others, s)
					}
				}
				all = append(all, v)
			}
			return all
		}
		votes := func(all []voice, addr string) (n int) {
			for _, v := range all {
				if v.votes && v.Addr == addr {
					n++
				}
			}
			return n
		}
		step := func(all []voice) {
			present := e.present
			kin := e.kin
			if slices.ContainsFunc(all, func(v voice) bool { return v.Addr == present.addr }) {
				kin = count(all)[present.addr].replicas
			}
			p := e.judge(now, all, majority, r.IntN(8) == 0)
			if p.addr == present.addr {
				return
			}
			history := fmt.Sprintf("seed %d: %v to %v by %v, majority %d", seed, present, p, all, majority)
			if present.addr != "" && votes(all, present.addr) >= majority {
				t.Fatalf("a living majority is left: %s", history)
			}
			if present.addr != "" && votes(all, p.addr) < majority && (!kin[p.addr] || p.proof == noProof) {
				t.Fatalf("an unknown server is followed: %s", history)
			}
			if present.addr != "" && p.epoch <= present.epoch && p.proof == noProof && !slices.ContainsFunc(all, func(v voice) bool { return v.Addr == present.addr }) {
				t.Fatalf("an older view is followed without a proof: %s", history)
			}
			if p.proof == noProof || roles[p.addr] && (p.proof == risen || !roles[present.addr]) {
				e.follow(p.view)
			}
		}
		for range r.IntN(40) {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			roles[servers[r.IntN(len(servers))]] = r.IntN(2) == 0
			step(speak())
		}
		// All Sentinels agree in the end, with any epochs.
		target := servers[r.IntN(len(servers))]
		roles[target] = true
		all := make([]voice, sentinels)
		for i := range all {
			all[i] = voice{Answer{Epoch: r.Int64N(3), Addr: target}, true}
		}
		for begin := now; now.Sub(begin) <= agreedFor; now = now.Add(time.Second) {
			step(all[:majority+r.IntN(sentinels-majority+1)])
		}
		if e.present.addr != target {
			t.Fatalf("seed %d: all name %s, and %s is followed", seed, target, e.present.addr)
		}
	}
}
