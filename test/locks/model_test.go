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
	turn  turn  // not of a client
	alive bool  // of a fork: the old primary goes on
	lapse int64 // of a grant, or of what sets its lease: from here on it may have ended
	doubt bool  // it may have been refused though nobody that is known of held the lock: another command may have had it, or it was reserved
}

// lockState is the lock between two commands: its holds, and those that may have ended.
type lockState struct {
	fence int64       // of the latest grant
	holds []holdState // in the order of their grants
}

// holdState is a hold between two commands.
//
// A proxy whose lease of a hold has ended by its own clock gives back what was acquired through it, though the same owner may
// keep the lock by the other proxy. So the number of holds is known exactly for who uses one proxy, and else within bounds.
type holdState struct {
	by    op // its grant
	lapse int64
	least int // holds
	most  int
	both  bool // acquired through both proxies
	given bool // a proxy may have given its part back, or be about to
	loose bool // the proxies remember more of it than the server, which has lost something
	parts [2]part
}

// part is what was acquired through one proxy, and certainly not given back by it yet.
type part struct {
	holds int
	lapse int64
}

func (h *holdState) deepen(i input) {
	h.least++
	h.most++
	h.parts[i.Proxy].holds++
	h.both = h.both || h.parts[0].holds > 0 && h.parts[1].holds > 0
	h.set(i)
}

func (h *holdState) set(i input) {
	h.lapse = i.lapse
	h.parts[i.Proxy].lapse = i.lapse
}

// part takes off what a proxy may have given back by the time a command returned.
func (h *holdState) part(at int64) {
	for q := range h.parts {
		if p := &h.parts[q]; h.both && at >= p.lapse && p.holds > 0 {
			h.least = max(0, h.least-p.holds)
			p.holds, h.given = 0, true
		}
	}
}

// release takes off one hold; that of the proxy it went through, if there is one.
func (h *holdState) release(i input) {
	h.most--
	if h.least--; !h.given {
		h.least = max(1, h.least) // as the answer says
	}
	h.least = max(0, h.least)
	for _, q := range []int{i.Proxy, 1 - i.Proxy} {
		if h.parts[q].holds > 0 {
			h.parts[q].holds--
			return
		}
	}
}

// mayHaveEnded reports whether the lease may have ended before a command returned.
func (h *holdState) mayHaveEnded(i input) bool { return i.Return >= h.lapse || h.least == 0 }

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
	h := holdState{by: i.op}
	h.deepen(i)
	s.holds, s.fence = append(s.holds, h), i.Fence
}

// after is the lock after a command, if the command may have had its outcome.
func (s lockState) after(i input) (bool, lockState) {
	s.holds = slices.Clone(s.holds)
	for n := range s.holds {
		s.holds[n].part(i.Return)
	}
	at := slices.IndexFunc(s.holds, func(h holdState) bool { return h.by.hold() == i.hold() })
	h := &holdState{} // the owner's
	own := at >= 0
	if own {
		h = &s.holds[at]
	}
	lapsed := h.mayHaveEnded(i)
	switch {
	case i.acquire() && i.Out == acquired && own && i.Fence == h.by.Fence:
		h.deepen(i)
		return true, s
	case i.acquire() && i.Out == acquired:
		ok := lapsed && i.Fence > s.fence && !s.bars(i, func(h *holdState) bool { return !h.mayHaveEnded(i) })
		s.grant(i)
		return ok, s
	case i.acquire(): // busy
		return i.Verb == "FAIRLOCK" || i.doubt || s.bars(i, func(other *holdState) bool { return other != h }), s
	case i.Verb == "EXTENDLOCK" && i.Out == extended:
		h.set(i)
		return own, s
	case i.Verb == "LOCKINFO" && i.Out == mine:
		return own && i.Fence == h.by.Fence, s
	case i.Verb == "UNLOCK" && i.Out == released:
		if own && (h.loose || h.least <= 1 && h.most >= 1) {
			s.holds = slices.Delete(s.holds, at, at+1)
			return true, s
		}
		return false, s
	case i.Verb == "UNLOCK" && i.Out == still:
		h.release(i)
		return own && (h.loose || h.most >= 1), s
	case i.Named && strings.HasPrefix(i.Text, "LOSTLEASE"): // of this session; the owner may have another elsewhere
		return true, s
	default: // not the holder, so it was told. If the lease may have ended, it still need not have.
		return lapsed || h.loose, s
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
		sum = sum*31 ^ uint64(h.by.Fence)<<8 ^ uint64(h.most)<<1 ^ uint64(h.lapse)
	}
	return sum
}

// inputs prepares the history of one key. excused reports whether an acquire may get nothing though the lock is free: nobody could tell.
func inputs(key string, histories map[string][]op, lease time.Duration, excused func(op) bool, losses []loss) []porcupine.Operation {
	var all []porcupine.Operation
	var doubts, queued, waiters, releases []op
	for _, ops := range histories {
		for _, o := range ops {
			if o.Key == key && o.acquire() && (o.Out == unknown || o.Out == strange || o.tooLate() && (o.Out == busy || excused(o)) || o.hadAnother(losses)) {
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
		if o.Out == acquired || o.Out != unknown && o.hadAnother(losses) {
			end := o.Return
			for _, l := range losses {
				if l.hits(o) {
					end = max(end, l.to+int64(lease)) // what ended the other grant may be lost
				}
			}
			return end
		}
		return o.Call + int64(12*time.Second+lease)
	}
	client := 0
	for _, ops := range histories {
		lapses := lapsesOf(ops)
		for i, o := range ops {
			if o.Key != key || o.Out == unknown || o.Out == earlier || o.Out == refused || o.Out == notSynced || o.Out == deadlock || o.Out == strange {
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
	for _, l := range losses {
		if l.concerns(key) {
			all = append(all, l.turns(client)...)
		}
	}
	return all
}

// hadAnother reports whether the lock may have been the command's for a while before its answer, by another grant. With SYNC, grants that
// too few replicas have within 300 ms are given back. And a command that is under way in a failover may have been carried out by the old
// primary first.
func (o op) hadAnother(losses []loss) bool {
	const leastSync = 300 * time.Millisecond
	if o.Sync > 0 && (o.Out != acquired || o.Return-o.Call >= int64(leastSync)) {
		return true
	}
	return slices.ContainsFunc(losses, func(l loss) bool { return l.hits(o) && o.Return >= l.from })
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
func linearizable(key string, histories map[string][]op, lease time.Duration, excused func(op) bool, losses []loss, picture string) string {
	history := inputs(key, histories, lease, excused, losses)
	model := model
	if slices.ContainsFunc(losses, func(l loss) bool { return l.concerns(key) }) {
		model = lossyModel
	}
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
