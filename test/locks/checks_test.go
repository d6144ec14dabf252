package locks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// finding is one violation, with the name of the check that found it.
type finding struct{ check, text string }

// check looks at everything that was written down, after the end of the experiment.
func (s *stand) check() (found []finding) {
	add := func(check string, texts ...string) {
		for i, text := range texts {
			if i == 5 {
				text = fmt.Sprintf("and %d more", len(texts)-5)
			}
			if i <= 5 {
				found = append(found, finding{check, text})
			}
		}
	}
	histories := s.history()
	var all []*hold
	for _, ops := range histories {
		all = append(all, holdsOf(ops, s.pair != nil)...)
	}
	if !s.forgets {
		for _, key := range s.keys {
			picture := filepath.Join(s.t.ArtifactDir(), key+".html")
			if bad := linearizable(key, histories, s.lease, s.mayGetNothing, picture); bad != "" {
				add("model", bad)
			}
		}
		add("order", s.outOfOrder(histories)...)
	}
	add("fences", fences(all)...)
	add("ttl", s.watcher.eternal...)
	add("replies", replies(histories)...)
	add("calm", s.uncalled(all, histories)...)
	return found
}

// fences must grow from hold to hold, in whatever Redis forgot: a grant that was called for after another's return has
// the larger fence, and no two have the same.
func fences(all []*hold) (bad []string) {
	byKey := make(map[string][]*hold)
	for _, h := range all {
		byKey[h.key] = append(byKey[h.key], h)
	}
	for _, holds := range byKey {
		returns := slices.SortedFunc(slices.Values(holds), func(a, b *hold) int { return int(a.first.Return - b.first.Return) })
		calls := slices.SortedFunc(slices.Values(holds), func(a, b *hold) int { return int(a.first.Call - b.first.Call) })
		var largest *hold
		of := make(map[int64]*hold)
		for _, h := range calls {
			if other := of[h.fence]; other != nil && other.first.hold() != h.first.hold() {
				bad = append(bad, fmt.Sprintf("%v\n  beside %v", h, other))
			}
			of[h.fence] = h
			for len(returns) > 0 && returns[0].first.Return < h.first.Call {
				if largest == nil || returns[0].fence > largest.fence {
					largest = returns[0]
				}
				returns = returns[1:]
			}
			if largest != nil && h.fence <= largest.fence && !h.revived {
				bad = append(bad, fmt.Sprintf("%v\n  after %v", h, largest))
			}
		}
	}
	return bad
}

// outOfOrder finds fair waiters that overtook others: one asked when the other had been seen in the queue, and was
// granted the lock with a smaller fence. Waiters that gave up or were killed have no grant and prove nothing. Nor do those
// that may have lost their turn: a grant that reaches the proxy after its lease, because something stood still, is given
// back, and the waiter takes a new place.
func (s *stand) outOfOrder(histories map[string][]op) (bad []string) {
	granted := make(map[string]op) // by owner: the commands that waited
	for _, ops := range histories {
		for _, o := range ops {
			if _, again := granted[o.Key+" "+o.Owner]; o.Verb == "FAIRLOCK" && o.Named && o.Out == acquired && !again {
				granted[o.Key+" "+o.Owner] = o
			}
		}
	}
	for _, first := range granted {
		at, seen := s.watcher.queued[first.Key][first.Owner]
		if s.mayHaveLostItsTurn(first) {
			continue
		}
		for _, second := range granted {
			if seen && second.Key == first.Key && at.from < second.Call && second.Fence < first.Fence {
				bad = append(bad, fmt.Sprintf("%v\n  came after %v\n  though queued at %.3f, before it asked", first, second, seconds(at.from)))
			}
		}
	}
	return bad
}

func (s *stand) mayHaveLostItsTurn(o op) bool {
	return o.Return-o.Call >= o.Lease && s.disturbed(o)
}

// disturbed reports whether something was out of order, or had just been, while the command was under way.
func (s *stand) disturbed(o op) bool {
	return slices.ContainsFunc(slices.Concat(s.incidents, s.stalls.all()), func(in incident) bool {
		return !in.harmless && in.from <= o.Return && o.Call <= in.to+int64(late)
	})
}

func replies(histories map[string][]op) (bad []string) {
	for _, ops := range histories {
		for _, o := range ops {
			if o.Out == strange {
				bad = append(bad, o.String())
			}
		}
	}
	return bad
}

// late is how much later than its wait a command may return on a busy machine.
const late = time.Second

// uncalled finds what only a fault may cause and none did: a watched lease that was lost, a command without a reply or
// refused, a wait that took too long.
func (s *stand) uncalled(all []*hold, histories map[string][]op) (bad []string) {
	for _, h := range all {
		if h.watched && h.over && h.end.Out == notHeld && s.calm(h.first.Call, h.end.Return) {
			bad = append(bad, fmt.Sprintf("%v\n  was lost: %v", h, h.end))
		}
	}
	for _, ops := range histories {
		for i, o := range ops {
			last := i == len(ops)-1 // the end of the worker
			took := o.Return - o.Call
			switch {
			case o.Out == refused && s.calm(o.Call, o.Return):
				bad = append(bad, o.String())
			case o.Out == unknown && !last && s.calm(cmp.Or(o.Heard, o.Call), o.Call+int64(6*time.Second)) && !s.waitedBehind(all, o) && !(o.Verb == "FAIRLOCK" && s.behindStale(o)):
				bad = append(bad, o.String()+s.around(o, histories))
			case o.Return > 0 && took > max(0, o.Wait)+s.tooSlow() && (!o.acquire() || o.Wait >= 0) && s.calm(o.Call, o.Return):
				bad = append(bad, "slow: "+o.String())
			}
		}
	}
	return bad
}

// mayGetNothing reports whether an acquire may get nothing though nobody holds the lock.
func (s *stand) mayGetNothing(o op) bool { return o.Wait != 0 && s.disturbed(o) || s.behindStale(o) }

// behindStale reports whether a place that a fault may have made stale was in the fair queue during an acquire, or up to turnLimit before. Until the place
// is removed, which may be long after the fault, fair waiters wait behind it, and a lock that becomes free is reserved for it. A release may remove the
// place and reserve the lock for it at once, before the observer looks again.
func (s *stand) behindStale(o op) bool {
	if !o.acquire() {
		return false
	}
	end := cmp.Or(o.Return, o.Call+int64(endless))
	for place, seen := range s.watcher.queued[o.Key] {
		if place == o.Owner || seen.to+turnLimit < o.Call || seen.from > end {
			continue
		}
		if slices.ContainsFunc(s.incidents, func(in incident) bool {
			return !in.harmless && in.from <= seen.to && seen.from <= in.to
		}) {
			return true
		}
	}
	return false
}

// around are the faults that were done shortly before a command was given up or meanwhile, the other commands for its key, and its fair queue.
func (s *stand) around(o op, histories map[string][]op) string {
	from, to := o.Call-int64(endless), o.Call+int64(endless+late)
	var lines []logLine
	for _, in := range slices.Concat(s.incidents, s.stalls.all()) {
		if in.from <= to && in.to >= from {
			lines = append(lines, logLine{in.from, in.String()})
		}
	}
	for _, ops := range histories {
		for _, other := range ops {
			if other.Key == o.Key && other != o && other.Call <= to && max(other.Return, other.Call) >= from {
				lines = append(lines, logLine{other.Call, other.String()})
			}
		}
	}
	lines = append(lines, s.watcher.places(o.Key, from, to)...)
	return "\n  among\n" + inOrder(lines)
}

// tooSlow is how much later than its wait a command may return in calm. With a long lease a waiter that was forgotten is later by far.
func (s *stand) tooSlow() int64 { return int64(max(late, s.lease/2)) }

// waitedBehind reports whether others may have held the lock for nearly all the time that a worker waits for one: then there was nothing to answer.
// The observer saw the holds of workers that gave up at the moment of their grant, and so never learned of it.
func (s *stand) waitedBehind(all []*hold, o op) bool {
	if !o.acquire() || o.Wait >= 0 {
		return false
	}
	held := slices.Clone(s.watcher.held[o.Key])
	for _, h := range all {
		if h.key == o.Key {
			held = append(held, span{h.first.Call, h.until})
		}
	}
	slices.SortFunc(held, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	free, known, end := int64(0), o.Call, o.Call+int64(endless)
	for _, h := range append(held, span{end, end}) {
		free += max(0, min(h.from, end)-known)
		known = max(known, h.to)
	}
	return free < int64(late)
}

// summary is one line for people.
func (s *stand) summary() string {
	counts := make(map[string]int)
	total := 0
	for _, ops := range s.history() {
		for _, o := range ops {
			total++
			out := string(o.Out)
			if out == "" {
				out = "no reply"
			}
			counts[o.Verb+" "+out]++
		}
	}
	var parts []string
	for what, n := range counts {
		parts = append(parts, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d commands, %d faults, %d stalls of the machine, %d workers, %d looks at redis (longest queues %v)\n  %s",
		total, len(s.incidents), len(s.stalls.all()), s.started, s.watcher.looks, s.watcher.longest, strings.Join(parts, ", "))
}
