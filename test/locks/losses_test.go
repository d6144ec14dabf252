package locks

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// loss is a failover that nobody has prepared. The new primary has a prefix of what the old one did. How long it is at least is known
// exactly: just before the blow a write of the test's own went through the old primary and was found at all replicas (WAIT), so they had all
// that was carried out before it. Grants that were answered with SYNC are in the prefix as well, whenever that was. Nothing else is promised.
//
//	          sure      from           seen         to
//	───────────┼──────────┼─────────────┼────────────┼────────▶
//	 kept      │ kept or lost           │            │
//	           │          └ the promotion is here ┘  │
//	           │  the old primary may answer until here
//
// The new primary carries on from one of the states that the old one had since the sure write. If the old one lives on, commands that were
// sent to it meanwhile are carried out there, and do not exist for the new one.
type loss struct {
	keys []string
	sure span  // when the sure write was carried out
	from int64 // no other primary took a command before
	seen int64 // another primary was known
	to   int64 // the old primary answered no command after; not above from if it could not answer since the blow
}

// span is an interval of time.
type span struct{ from, to int64 }

func (l loss) String() string {
	return fmt.Sprintf("loss of %v: sure [%.3f, %.3f], from %.3f, seen %.3f, to %.3f",
		l.keys, seconds(l.sure.from), seconds(l.sure.to), seconds(l.from), seconds(l.seen), seconds(l.to))
}

func (l loss) concerns(key string) bool { return slices.Contains(l.keys, key) }

// hits reports whether a command may have been carried out by the old primary after the sure write.
func (l loss) hits(o op) bool {
	return l.concerns(o.Key) && o.Call < max(l.to, l.from) && (o.Return == 0 || o.Return > l.sure.from)
}

// alive reports whether the old primary answered for a while beside the new one.
func (l loss) alive() bool { return l.to > l.from }

// turn is what a loss adds to the history of a lock.
type turn int

const (
	none turn = iota
	sure      // the replicas have everything until now
	fork      // a new primary carries on
	join      // the old primary carries out nothing any more
)

// turns are those of the loss, as operations of a client.
func (l loss) turns(client int) []porcupine.Operation {
	at := func(what turn, text string, from, to int64) porcupine.Operation {
		in := input{op: op{Worker: "redis", Verb: text, Call: from, Return: to}, turn: what, alive: l.alive()}
		return porcupine.Operation{ClientId: client, Input: in, Call: from, Return: to}
	}
	all := []porcupine.Operation{at(sure, "REPLICATED", l.sure.from, l.sure.to)}
	if l.alive() {
		return append(all, at(fork, "PROMOTED", l.from, l.seen), at(join, "DEMOTED", l.to, l.to))
	}
	return append(all, at(fork, "DIED", l.from, l.from)) // nothing was carried out from there to the promotion
}

// branches is a lock that two servers may have. The model is not deterministic: a command may have been carried out by either, and the new
// primary may carry on from any state since the sure write.
type branches struct {
	main  lockState
	armed bool        // there was a sure write
	since []lockState // if so: the states from which a new primary may carry on
	split bool
	stale lockState // if so: the lock at the old primary
}

func (b branches) step(i input) (all []any) {
	switch i.turn {
	case sure:
		b.armed, b.since = true, []lockState{b.main}
		return []any{b}
	case fork:
		for _, s := range b.since {
			s.holds = slices.Clone(s.holds)
			for n := range s.holds {
				s.holds[n].loose = len(b.since) > 1
			}
			next := branches{main: s}
			if i.alive {
				next.split, next.stale = true, b.main
			}
			all = append(all, next)
		}
		return all
	case join:
		b.split, b.stale = false, lockState{}
		return []any{b}
	default:
	}
	if ok, s := b.main.after(i); ok {
		next := b
		next.main = s
		switch {
		case !b.armed:
		case i.synced():
			next.since = []lockState{s}
		case !slices.ContainsFunc(b.since, s.equal):
			next.since = append(slices.Clone(b.since), s)
		}
		all = append(all, next)
	}
	if ok, s := b.stale.after(i); ok && b.split && !i.synced() {
		b.stale = s
		all = append(all, b)
	}
	return all
}

func (b branches) equal(other branches) bool {
	return b.armed == other.armed && b.split == other.split && b.main.equal(other.main) && b.stale.equal(other.stale) &&
		slices.EqualFunc(b.since, other.since, lockState.equal)
}

// lossyModel is model for a lock that failovers may take something from.
var lossyModel = func() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{branches{}} },
		Step:  func(state, in, _ any) []any { return state.(branches).step(in.(input)) },
		Equal: func(a, b any) bool { return a.(branches).equal(b.(branches)) },
		Hash: func(state any) uint64 {
			b := state.(branches)
			return b.main.hash() ^ b.stale.hash()<<7 ^ uint64(len(b.since))<<40
		},
		DescribeOperation: model.DescribeOperation,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}()
