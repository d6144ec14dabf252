package sentinel

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// answers reads words: "1a" has epoch 1 and names a.
func answers(words string) (all []answer) {
	for word := range strings.FieldsSeq(words) {
		epoch, err := strconv.ParseInt(word[:len(word)-1], 10, 64)
		if err != nil {
			panic(err)
		}
		all = append(all, answer{epoch: epoch, addr: word[len(word)-1:]})
	}
	return all
}

func TestAMajorityIsFollowed(t *testing.T) {
	none := claim{}
	for _, c := range []struct {
		name    string
		of      int
		present view
		before  string // answers that were given first, agreedFor or a second before
		agreed  bool
		answers string
		want    claim
	}{
		{name: "nothing is known", of: 3, want: none},
		{name: "a majority at the start", of: 3, answers: "1000x 1a 1a", want: claim{view{"a", 1}, noProof}},
		{name: "a single Sentinel at the start", of: 1, answers: "0a", want: claim{view{"a", 0}, noProof}},
		{name: "all that answer at the start", of: 3, answers: "0a", want: claim{view{"a", 0}, risen}},
		{name: "they disagree at the start", of: 3, answers: "2b 1a", want: none},
		{name: "a failover during the start: its leader knows more", of: 3, answers: "2b 1a 1a", want: claim{view{"a", 1}, noProof}},
		{name: "no Sentinel answers", of: 3, present: view{"b", 2}, before: "2b 2b 2b", agreed: true, want: none},

		{name: "the leader of a failover tells first", of: 3, present: view{"a", 1}, answers: "1a 2b 1a", want: none},
		{name: "then another one", of: 3, present: view{"a", 1}, answers: "2b 2b 1a", want: claim{view{"b", 2}, risen}},
		{name: "the leader and one other are left", of: 3, present: view{"a", 1}, answers: "2b 1a", want: none},
		{name: "the leader alone is left", of: 3, present: view{"a", 1}, answers: "2b", want: claim{view{"b", 2}, fallen}},
		{name: "the same address with a greater epoch", of: 3, present: view{"a", 1}, before: "3a 3a 1a", answers: "2b 2b", want: claim{view{"b", 2}, vacant}},

		{name: "a stale Sentinel that was cut off", of: 3, present: view{"b", 2}, before: "1a 2b 2b", agreed: true, answers: "1a 2b 2b", want: none},
		{name: "it is the only one that answers", of: 3, present: view{"b", 2}, before: "1a", agreed: true, answers: "1a", want: claim{view{"a", 1}, fallen}},
		{name: "two start with an old configuration", of: 3, present: view{"b", 2}, answers: "1a 1a 2b", want: claim{view{"a", 1}, vacant}},
		{name: "the third one has told them", of: 3, present: view{"b", 2}, before: "1a 1a 2b", agreed: true, answers: "2b 2b 2b", want: none},
		{name: "a foreign one", of: 3, present: view{"a", 1}, before: "1000x 1a 1a", agreed: true, answers: "1000x 1a 1a", want: none},
		{name: "a foreign one, and another is down", of: 3, present: view{"a", 1}, before: "1000x 1a", agreed: true, answers: "1000x 1a", want: none},
		{name: "two against two", of: 4, present: view{"a", 1}, before: "2b 2b 1a 1a", agreed: true, answers: "2b 2b 1a 1a", want: none},

		{name: "they were set up anew with another primary", of: 3, present: view{"a", 7}, before: "7a 0c 0c", answers: "0c 0c 0c", want: claim{view{"c", 0}, vacant}},
		{name: "for some seconds", of: 3, present: view{"a", 7}, before: "0c 0c 0c", agreed: true, answers: "0c 0c", want: claim{view{"c", 0}, risen}},
		{name: "another one than before", of: 3, present: view{"a", 7}, before: "0d 0d 0c", agreed: true, answers: "0c 0c 0d", want: claim{view{"c", 0}, vacant}},
		{name: "with the same primary, and then a failover", of: 3, present: view{"a", 7}, before: "0a 0a 0a", answers: "1b 1b 0a", want: claim{view{"b", 1}, risen}},
	} {
		f, now := follower{sentinels: c.of}, time.Now()
		f.follow(c.present)
		f.hear(now, answers(c.before))
		now = now.Add(time.Second)
		if c.agreed {
			now = now.Add(agreedFor)
		}
		if got := f.hear(now, answers(c.answers)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestServersHaveTheLastWord(t *testing.T) {
	for role, want := range map[dial.Role]struct{ rises, vacant, fallen bool }{
		dial.Unreachable: {vacant: true},
		dial.Untold:      {rises: true},
		dial.Primary:     {rises: true},
		dial.Replica:     {vacant: true, fallen: true},
	} {
		if rises(role) != want.rises || vacant.leaves(role) != want.vacant || fallen.leaves(role) != want.fallen {
			t.Errorf("role %d", role)
		}
	}
}

// In histories of random answers, a primary is left only for one that a majority names, or that no Sentinel contradicts
// while the present one says that it is a replica; and a majority with a primary is followed in the end.
func TestRandomHistories(t *testing.T) {
	servers := strings.Split("abcx", "")
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		f, now := follower{sentinels: 1 + r.IntN(5)}, time.Now()
		roles := map[string]dial.Role{}
		votes := func(all []answer, addr string) (n int) {
			for _, a := range all {
				if a.addr == addr {
					n++
				}
			}
			return n
		}
		step := func(all []answer) {
			from := f.present
			c := f.hear(now, all)
			if c.addr == "" || c.proof != noProof && !rises(roles[c.addr]) || c.proof > risen && !c.proof.leaves(roles[from.addr]) {
				return
			}
			f.follow(c.view)
			alone := votes(all, c.addr) == len(all) && (from.addr == "" || roles[from.addr] == dial.Replica)
			if votes(all, c.addr) <= f.sentinels/2 && !alone {
				t.Fatalf("seed %d: %v to %v by %v of %d", seed, from, c, all, f.sentinels)
			}
		}
		for range r.IntN(40) {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			roles[servers[r.IntN(len(servers))]] = dial.Role(r.IntN(int(dial.Replica) + 1))
			var all []answer
			for range r.IntN(f.sentinels + 1) {
				all = append(all, answer{epoch: r.Int64N(4) * r.Int64N(500), addr: servers[r.IntN(len(servers))]})
			}
			step(all)
		}
		target := servers[r.IntN(len(servers))]
		roles[target] = dial.Primary
		for begin := now; now.Sub(begin) <= agreedFor; now = now.Add(time.Second) {
			all := make([]answer, f.sentinels/2+1)
			for i := range all {
				all[i] = answer{epoch: r.Int64N(3), addr: target}
			}
			step(all)
		}
		if f.present.addr != target {
			t.Fatalf("seed %d: a majority names %s, and %s is followed", seed, target, f.present.addr)
		}
	}
}
