package locks

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of one lock with leases and fences, for a linearizability checker. All kinds have one rule: there are at most op.most
// holds of a kind, and none beside one of another kind (op.apart).
//
// Time is only a lower bound: a lease set by a call cannot end before that call plus its length, so a command may find
// the lock ended by itself only if it returned later than that. Slow clients and slow checkers thus raise no false
// alarm. A command without a reply is not part of the history; what it may have done is in the inputs of the others:
// it may have held the lock (doubt), or shortened a lease (lapse).

// input is a command with what the whole history says about it.
type input struct {
	op
	lapse int64 // of a grant, or of what sets its lease: from here on it may have ended
	doubt bool  // it may have been refused though nobody that is known of held the lock: another command may have had it, or it was reserved
}

// lockState is the lock between two commands: its holds, and those that may have ended.
type lockState struct {
	fence int64       // of the latest grant
	holds []holdState // in the order of their grants
}

// holdState is a hold between two commands. An owner uses one proxy, which gives back all of it at once.
type holdState struct {
	by    op // its grant
	lapse int64
	count int
}

// mayHaveEnded reports whether the lease may have ended before a command returned.
func (h *holdState) mayHaveEnded(i input) bool { return i.Return >= h.lapse }

// bars reports whether an acquire cannot be granted because of the holds that count.
func (s lockState) bars(i input, counts func(h *holdState) bool) bool {
	like := 0
	for n := range s.holds {
		switch h := &s.holds[n]; {
		case !counts(h):
		case h.by.apart(i.op):
			return true
		case h.by.Kind == i.Kind:
			like++
		}
	}
	return like >= i.most()
}

// grant adds a hold. Those that it may not be beside have ended.
func (s *lockState) grant(i input) {
	s.holds = slices.DeleteFunc(s.holds, func(h holdState) bool {
		return h.by.apart(i.op) || h.by.hold() == i.hold() || h.by.Kind == i.Kind && i.most() == 1
	})
	s.holds, s.fence = append(s.holds, holdState{by: i.op, lapse: i.lapse, count: 1}), i.Fence
}

// after is the lock after a command, if the command may have had its outcome.
func (s lockState) after(i input) (bool, lockState) {
	s.holds = slices.Clone(s.holds)
	at := slices.IndexFunc(s.holds, func(h holdState) bool { return h.by.hold() == i.hold() })
	h := &holdState{} // the owner's
	own := at >= 0
	if own {
		h = &s.holds[at]
	}
	lapsed := h.mayHaveEnded(i)
	switch {
	case i.acquire() && i.Out == acquired && own && i.Fence == h.by.Fence:
		h.count++
		h.lapse = i.lapse
		return true, s
	case i.acquire() && i.Out == acquired:
		ok := lapsed && i.Fence > s.fence && !s.bars(i, func(h *holdState) bool { return !h.mayHaveEnded(i) })
		s.grant(i)
		return ok, s
	case i.acquire(): // busy
		return i.Verb == "FAIRLOCK" || i.doubt || s.bars(i, func(other *holdState) bool { return other != h }), s
	case i.Verb == "EXTENDLOCK" && i.Out == extended:
		h.lapse = i.lapse
		return own, s
	case i.Verb == "LOCKINFO" && i.Out == mine:
		return own && i.Fence == h.by.Fence, s
	case i.Verb == "UNLOCK" && i.Out == released:
		if h.count != 1 {
			return false, s
		}
		s.holds = slices.Delete(s.holds, at, at+1)
		return true, s
	case i.Verb == "UNLOCK" && i.Out == still:
		h.count--
		return h.count >= 1, s
	case i.Named && strings.HasPrefix(i.Text, "LOSTLEASE"): // of this session; the owner's other one may have it again
		return true, s
	default: // not the holder, so it was told. If the lease may have ended, it still need not have.
		return lapsed, s
	}
}

func step(state, in, _ any) (bool, any) {
	return state.(lockState).after(in.(input))
}

var model = porcupine.Model{
	Init:              func() any { return lockState{} },
	Step:              step,
	Equal:             func(a, b any) bool { return a.(lockState).equal(b.(lockState)) },
	Hash:              func(state any) uint64 { return state.(lockState).hash() },
	DescribeOperation: func(in, _ any) string { return in.(input).String() },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func (s lockState) equal(other lockState) bool {
	return s.fence == other.fence && slices.Equal(s.holds, other.holds)
}

func (s lockState) hash() uint64 {
	sum := uint64(s.fence)
	for _, h := range s.holds {
		sum = sum*31 ^ uint64(h.by.Fence)<<8 ^ uint64(h.count)<<1 ^ uint64(h.lapse)
	}
	return sum
}

// inputs prepares the history of one key. excused reports whether an acquire may get nothing though the lock is free: nobody could tell.
func inputs(key string, histories map[string][]op, lease time.Duration, excused func(op) bool) []porcupine.Operation {
	var all []porcupine.Operation
	var doubts, queued, waiters, releases []op
	for _, ops := range histories {
		for _, o := range ops {
			if o.Key == key && o.acquire() && (o.Out == unknown || o.Out == strange || o.tooLate() && (o.Out == busy || excused(o)) || o.hadAnother()) {
				doubts = append(doubts, o)
			}
			if o.Key == key && o.acquire() && o.Wait != 0 && o.Out != unknown {
				queued = append(queued, o)
			}
			switch {
			case o.Key != key:
			case o.gaveUp():
				waiters = append(waiters, o)
			case o.Verb == "UNLOCK" && o.Out == released:
				releases = append(releases, o)
			}
		}
	}
	// How long a lock without an owner that knows of it may stay: until the proxy has found out that its client has
	// gone, which takes the limit of the call and the user timeout, and the lease has run out.
	stays := func(o op) int64 {
		if o.Out == acquired || o.Out != unknown && o.hadAnother() {
			return o.Return
		}
		return o.Call + int64(12*time.Second+lease)
	}
	client := 0
	for _, ops := range histories {
		lapses := lapsesOf(ops)
		for i, o := range ops {
			if o.Key != key || o.Out == unknown || o.Out == refused || o.Out == notSynced || o.Out == deadlock || o.Out == strange {
				continue
			}
			in := input{op: o, lapse: lapses[i]}
			if o.Out == busy {
				in.doubt = o.tooLate() || excused(o) || slices.ContainsFunc(doubts, func(d op) bool {
					return d.Call <= o.Return && o.Call <= stays(d)
				}) || o.wasReserved(waiters, releases) || o.wasBehind(queued)
			}
			all = append(all, porcupine.Operation{ClientId: client, Input: in, Call: o.Call, Return: o.Return})
		}
		client++
	}
	return all
}

// hadAnother reports whether the lock may have been the command's for a while before its answer, by another grant: one
// with SYNC that too few replicas have within 300 ms is given back.
func (o op) hadAnother() bool {
	const leastSync = 300 * time.Millisecond
	return o.Sync > 0 && (o.Out != acquired || o.Return-o.Call >= int64(leastSync))
}

// tooLate reports whether there may have been a grant before the answer: one that reaches the proxy after its lease is given back,
// and answered with null or followed by another attempt; so is one that was lost on its way and found out after it had ended.
func (o op) tooLate() bool {
	return o.Return-o.Call >= o.Lease && (o.Out == busy || o.Out == acquired && o.Wait != 0)
}

// gaveUp reports whether the command waited for the lock and did not get it.
func (o op) gaveUp() bool { return o.acquire() && o.Out == busy && o.Wait != 0 }

// turnLimit is how long a released lock is reserved for the first place in its queue.
const turnLimit = int64(250*time.Millisecond) + rounding

// wasReserved reports whether the lock may have been free during the command, but reserved for one of the waiters, which have given up. That
// is so until turnLimit after each release. A command that lasted longer has seen the end of that time.
func (o op) wasReserved(waiters, releases []op) bool {
	return o.Return-o.Call <= turnLimit && slices.ContainsFunc(releases, func(r op) bool {
		return r.Call <= o.Return && o.Call <= r.Return+turnLimit && slices.ContainsFunc(waiters, func(w op) bool {
			return w != o && w.Call <= min(o.Return, r.Return) && max(o.Call, r.Call) <= w.Return
		})
	})
}

// wasBehind reports whether another waiter may have been first in the queue: then a lock takes no further holder beside others.
func (o op) wasBehind(queued []op) bool {
	return o.Kind != exclusive && slices.ContainsFunc(queued, func(q op) bool { return q != o && q.Call <= o.Return && o.Call <= q.Return })
}

// ended reports whether the command may have ended its own lock: the lease that it sets may have ended before its answer, and the answer says
// that it got nothing. The first copy was executed, and a repetition, or the proxy's clock, found the end.
func (o op) ended() bool {
	return (o.Verb == "EXTENDLOCK" && o.Out == notHeld || o.acquire() && o.Out == busy) && o.Return-o.Call >= o.Lease
}

// lapsesOf says for each command of a worker from when on the lease it has set may have ended.
func lapsesOf(ops []op) []int64 {
	lapses := make([]int64, len(ops))
	graced := make(map[[2]string]bool)
	for i, o := range ops {
		k := [2]string{o.Key, o.hold()}
		graced[k] = graced[k] || o.Graced
		lapses[i] = o.Call + o.Lease - rounding
		if graced[k] {
			lapses[i] = math.MinInt64
			continue
		}
		// A release or shorter lease that was not answered may still come about. One that was answered too late may have come about.
		for _, later := range ops[i+1:] {
			if later.Key == o.Key && later.hold() == o.hold() && (later.Out == unknown || later.ended()) {
				least := later.Call
				if later.Verb != "UNLOCK" {
					least += later.Lease
				}
				lapses[i] = min(lapses[i], least)
			}
			if later.Call > lapses[i] {
				break
			}
		}
	}
	return lapses
}

// linearizable returns what is wrong with the history of a key; empty: nothing.
func linearizable(key string, histories map[string][]op, lease time.Duration, excused func(op) bool, picture string) string {
	history := inputs(key, histories, lease, excused)
	result, info := porcupine.CheckOperationsVerbose(model, history, 2*time.Minute)
	switch result {
	case porcupine.Ok:
		return ""
	case porcupine.Illegal:
	default:
		return fmt.Sprintf("%s: the checker did not come to an end with %d commands", key, len(history))
	}
	bad := fmt.Sprintf("%s: %d commands cannot be put in an order", key, len(history))
	if longest := info.PartialLinearizationsOperations(); len(longest) > 0 && len(longest[0]) > 0 {
		bad += firstBad(history, longest[0])
	}
	if err := porcupine.VisualizePath(model, info, picture); err == nil {
		bad += "\n  picture: " + picture
	}
	return bad
}

// firstBad tells where the longest order that could be found ends.
func firstBad(history []porcupine.Operation, partials [][]porcupine.Operation) string {
	longest := slices.MaxFunc(partials, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
	in := make(map[string]bool)
	for _, o := range longest {
		in[o.Input.(input).String()] = true
	}
	text := "\n  after"
	for _, o := range longest[max(0, len(longest)-4):] {
		text += "\n    " + o.Input.(input).String()
	}
	rest := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool { return in[o.Input.(input).String()] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	text += "\n  there is no place for"
	for _, o := range rest[:min(len(rest), 4)] {
		text += "\n    " + o.Input.(input).String()
	}
	return text
}
