package lockcmds

import (
	"cmp"
	"errors"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
	"lockproxy/internal/watchdog"
)

// giving is one UNLOCK in progress.
type giving struct {
	c      *client
	caller Caller
	cmd    grammar.Command
	owner  string
	h      *hold   // nil: no session of this proxy holds it for that owner
	plain  *waiter // the first of those here, may get the lock in the same step; nil: there is none, or it may not
	fair   *waiter // the same of the fair ones
	spent  charge  // where it was taken off
	sentAt time.Time
}

func (e *Engine) startRelease(s Caller, cmd grammar.Command) {
	g := &giving{caller: s, cmd: cmd, owner: cmd.Owner}
	e.mu.Lock()
	g.c = e.clientLocked(s)
	if g.owner == "" {
		g.owner = g.c.owner
	}
	k := holdKey{cmd.Key, g.owner}
	if e.knowsLossLocked(g.c, k) {
		e.mu.Unlock()
		s.Reply(lostLease())
		return
	}
	if r := e.returning[k]; r != nil {
		e.deferReleaseLocked(r, g, cmd)
		e.mu.Unlock()
		return
	}
	g.h = e.holds[k]
	g.spent = e.spendLocked(g.c, k, cmd.Fence)
	e.mu.Unlock()
	if g.h != nil {
		// A renewal that is on its way, perhaps on a sick connection, is not waited for: behind the release Redis refuses it by owner
		// and fence, and what it says of a hold that is being released is no loss.
		g.h.lease.Pause(nil)
	}
	e.sendRelease(g)
}

// deferReleaseLocked puts a release off. Our part is taken off now: should the session end meanwhile, this one is cared for.
func (e *Engine) deferReleaseLocked(r *returns, g *giving, cmd grammar.Command) {
	k := holdKey{cmd.Key, g.owner}
	spent := e.spendLocked(g.c, k, cmd.Fence)
	e.deferLocked(r, g.c.s, func() {
		e.mu.Lock()
		e.refundLocked(k, spent)
		e.mu.Unlock()
		e.startRelease(g.caller, cmd)
	}, func() {
		e.giveBack(grantOf{k, cmp.Or(cmd.Fence, spent.fence)}, 1, g.owner == g.c.owner)
	})
}

// sendRelease sends the release, or the hand-over if a waiter here can have the lock next. Requires the session lock.
func (e *Engine) sendRelease(g *giving) {
	lease := time.Duration(0) // a fixed lease, or one that is not ours to judge, is left to run out as it was
	e.mu.Lock()
	if g.h != nil {
		if !g.h.fixed {
			lease = g.h.ttl
		}
		g.h.releasing++
		g.plain, g.fair = e.nextLocked(g.h)
	}
	e.mu.Unlock()
	release := script.Release{Key: g.cmd.Key, Owner: g.owner, Lease: lease, Fence: g.cmd.Fence}
	call := release.Call()
	if g.plain != nil || g.fair != nil {
		call = e.handOver(g, release).Call()
	}
	g.sentAt = e.clock.Now()
	e.script(g.c.s, Call{Call: call, Pipelined: true, Done: func(reply resp.Value, err error) []byte {
		a, err := decoded(reply, err, script.DecodeReleased)
		return e.released(g, a, err)
	}})
}

// handOver is the call of a release that says who may have the lock next.
func (e *Engine) handOver(g *giving, release script.Release) script.HandOver {
	who := func(w *waiter) *script.Next {
		if w == nil {
			return nil
		}
		return &script.Next{Owner: w.Owner, Lease: w.lease, Shared: w.Shared}
	}
	h := script.HandOver{Release: release, Wait: e.opts.fairWait, Crowd: e.waits.place, Plain: who(g.plain), Fair: who(g.fair)}
	if g.plain != nil {
		_, h.Stays, _ = g.plain.First()
	}
	return h
}

// nextLocked takes the waiters of which one gets the lock by a hand-over, if the script finds that it is its turn. It must be the
// last hold, or there is nothing to hand over.
func (e *Engine) nextLocked(h *hold) (plain, fair *waiter) {
	if h.count != 1 || e.waits.set.Find(h.key) == nil {
		return nil, nil
	}
	next, ok := h.chain.Next(e.clock.Now())
	if !ok {
		return nil, nil // its message gives everybody the same chance
	}
	e.waits.stepLocked(func(q *queue.Set) {
		shared, own := q.Offer(h.key, h.owner)
		if shared != nil {
			plain = waiterOf(shared)
			plain.chain = next
		}
		if own != nil {
			fair = waiterOf(own)
			fair.chain = next
		}
	})
	return plain, fair
}

// released turns the answer of a release into the reply. Requires the session lock.
func (e *Engine) released(g *giving, a script.Released, err error) []byte {
	if g.h != nil && isOverwritten(err) {
		a, err = script.Released{Status: script.NotHolder}, nil
	}
	e.note(g.cmd.Key, a.Damage)
	var told *loss
	var after func()
	e.mu.Lock()
	h := g.h
	if h != nil {
		h.releasing--
	}
	lost := h != nil && h.lost
	if h != nil && e.holds[h.holdKey] != h {
		h = nil // lost or dropped meanwhile
	}
	k := holdKey{g.cmd.Key, g.owner}
	if g.plain != nil || g.fair != nil {
		after = e.handedLocked(g, a, err)
	}
	unsent := err != nil && !errors.Is(err, ErrInDoubt)
	// The session's end has left this hold to the release. Of the session's own owner nobody else has a hold, so it may be given
	// back although the release may have been done.
	orphaned := err != nil && g.c.ended && g.spent.fence != 0 && (unsent || errors.Is(err, ErrInDoubt) && g.owner == g.c.owner)
	if !orphaned && (unsent || err == nil && (a.Status == script.NotHolder || a.Status == script.OtherGrant)) {
		e.refundLocked(k, g.spent)
	}
	var out []byte
	switch {
	case err != nil:
		if h != nil {
			if !unsent {
				h.doubts++
			}
			h.lease.Continue()
		} else if lost {
			e.restLocked(g.c, g.h, g.h.count, g.h.ttl)
		}
		out = appendFailure(nil, err)
	case a.Status == script.Freed || a.Status == script.HandedOver:
		if h != nil && h.fence <= a.Fence {
			e.dropLocked(h)
		} else if h != nil {
			h.lease.Continue()
		}
		g.c.lost.Forget(k.key, k.owner)
		out = redcon.AppendInt(nil, 1)
	case a.Status == script.StillHeld && lost && g.h.fence == a.Fence && g.h.releasing < a.Holds:
		e.restLocked(g.c, g.h, a.Holds, g.h.ttl) // Redis judges later than our clock
		g.c.lost.Forget(k.key, k.owner)
		out = lostLease()
	case a.Status == script.StillHeld:
		if h != nil && h.fence == a.Fence {
			if !h.counted(a.Holds, g.sentAt) || h.fixed {
				h.lease.Continue()
			} else if !h.lease.Resume(g.sentAt, h.entry()) {
				h.lease = e.dog.Track(h.entry(), g.sentAt)
			}
		} else if h != nil {
			h.lease.Continue()
		}
		g.c.lost.Forget(k.key, k.owner)
		out = redcon.AppendInt(nil, 0)
	default:
		// Not the holder, or not by the grant that was named.
		mine := h != nil && (a.Status == script.NotHolder || h.fence < a.Fence)
		if mine && !h.givenUp() {
			told = e.loseLocked(h, watchdog.ReasonGone, g.c)
			out = lostLease()
		} else if mine {
			e.dropLocked(h)
			out = notHeld()
		} else {
			if h != nil {
				h.lease.Continue()
			}
			out = e.tellLostLocked(g.c, k, lost, notHeld())
		}
	}
	e.mu.Unlock()
	e.tell(told)
	if orphaned {
		e.giveBack(grantOf{k, g.spent.fence}, 1, g.owner == g.c.owner)
	}
	if after != nil {
		e.afterUnlock(g.c.s, after)
	}
	return out
}

// knowsLossLocked reports that the session has lost this lock, and forgets it: the answer is to be -LOSTLEASE, and
// nothing may be sent. Redis may have the key for an instant more, or for the same owner by another session, and who
// was told of the loss must not act on it unawares.
func (e *Engine) knowsLossLocked(c *client, k holdKey) bool {
	return e.holds[k] == nil && c.lost.Forget(k.key, k.owner)
}

// tellLostLocked replaces the reply if the lock was lost while the command was on its way, or the session has lost it before and
// was not told by a reply yet.
func (e *Engine) tellLostLocked(c *client, k holdKey, lost bool, reply []byte) []byte {
	if c.lost.Forget(k.key, k.owner) || lost || c.lost.Vague() {
		return lostLease()
	}
	return reply
}

func lostLease() []byte { return resp.AppendError(nil, resp.LostLease, "the lease has ended before") }

func notHeld() []byte {
	return resp.AppendError(nil, resp.NotHeld, "the owner does not hold this lock")
}

// handedLocked settles the waiters of which one was to get the lock, and returns what has to be done without locks.
func (e *Engine) handedLocked(g *giving, a script.Released, err error) (after func()) {
	granted, missed := script.Acquired{}, script.Acquired{PTTL: script.NoTTL}
	switch {
	case err != nil && !errors.Is(err, ErrInDoubt):
		err = ErrUnsent // the release was refused: nothing happened to the waiters
	case err == nil && (a.Status == script.Freed || a.Status == script.HandedOver):
		granted = script.Acquired{Granted: true, Fence: a.Granted, Holds: 1, Placed: true, Place: a.Place}
		missed.Placed, missed.Place = true, a.Place
	}
	if a.To != script.ToNobody && e.opts.Events.HandedOver != nil {
		e.opts.Events.HandedOver()
	}
	var settled []func()
	for i, w := range []*waiter{script.ToPlain: g.plain, script.ToFair: g.fair} {
		if w == nil {
			continue
		}
		outcome, answer := granted, answerOf(w, granted, err)
		if a.To != int64(i) {
			// If the lock was freed, its message wakes the waiter along with everybody else; if it was handed to another, its turn will
			// come; else the next attempt tells how things stand.
			outcome, answer = missed, answerOf(w, missed, err)
			answer.Again = err == nil && !missed.Placed
		}
		if f := e.answeredLocked(w, outcome, g.sentAt, answer); f != nil {
			settled = append(settled, f)
		}
	}
	if len(settled) == 0 {
		return nil
	}
	return func() { run(settled) }
}
