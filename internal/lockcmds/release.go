package lockcmds

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"lockproxy/internal/resp"
	"lockproxy/internal/watchdog"
)

// A lock goes from hand to hand within one proxy at most so often, or so long, before waiters elsewhere get a chance.
const (
	maxHandovers    = 32
	maxHandoverTime = 100 * time.Millisecond
)

// giving is one UNLOCK in progress.
type giving struct {
	c      *client
	cmd    Command
	owner  string
	h      *hold   // nil: no session of this proxy holds it for that owner
	next   *waiter // gets the lock in the same step; nil: a plain release
	sentAt time.Time
}

func (e *Engine) startRelease(s Session, cmd Command) {
	g := &giving{cmd: cmd, owner: cmd.Owner}
	e.mu.Lock()
	g.c = e.clientLocked(s)
	if g.owner == "" {
		g.owner = g.c.owner
	}
	g.h = e.holds[holdKey{cmd.Key, g.owner}]
	e.mu.Unlock()
	if g.h == nil {
		e.sendRelease(s, g)
		return
	}
	ordered(s, g.h.lease, func() { e.sendRelease(s, g) }, func() {
		// The client asked for the release and hung up before it could be sent.
		g.h.lease.Continue()
		e.giveBack(cmd.Key, g.owner, g.h.fence, 1)
	})
}

// sendRelease sends the release, or the hand-over if a waiter here can have the lock next. Session locked.
func (e *Engine) sendRelease(s Session, g *giving) {
	lease := "0" // a fixed lease, or one that is not ours to judge, is left to run out as it was
	e.mu.Lock()
	if g.h != nil {
		if !g.h.fixed {
			lease = millis(g.h.ttl)
		}
		g.h.releasing++
		g.next = e.nextLocked(g.h)
	}
	e.mu.Unlock()
	key := g.cmd.Key
	call := Call{
		Script: e.scripts.release,
		Keys:   arguments(key, channelOf(key), queueOf(key)),
		Args:   arguments(g.owner, lease, itoa(g.cmd.Fence), e.opts.Publish),
		GoOn:   true,
		Done:   func(reply resp.Value, err error) []byte { return e.released(g, reply, err) },
	}
	if w := g.next; w != nil {
		call.Script = e.scripts.handover
		call.Keys = append(call.Keys, []byte(fenceOf(key, e.opts.Cluster)))
		call.Args = append(call.Args, []byte(w.owner), []byte(millis(w.lease)))
	}
	g.sentAt = time.Now()
	s.Script(call)
}

// nextLocked takes the waiter that gets the lock by a hand-over. It must be the last hold, or there is nothing to hand
// over; a fair queue goes first.
func (e *Engine) nextLocked(h *hold) *waiter {
	r := e.rooms[h.key]
	if r == nil || r.trying != nil || r.plain.first == nil || r.fair.first != nil || h.count != 1 {
		return nil
	}
	w := r.plain.first
	if w.owner == h.owner || w.doubt {
		return nil
	}
	now := time.Now()
	if r.handovers == 0 {
		r.handedSince = now
	}
	if r.handovers >= maxHandovers || now.Sub(r.handedSince) > maxHandoverTime {
		r.handovers = 0
		return nil // its message gives everybody the same chance
	}
	r.handovers++
	r.trying, w.state, w.again = w, stateTrying, false
	return w
}

// released turns the answer of a release into the reply. Session locked.
func (e *Engine) released(g *giving, reply resp.Value, err error) []byte {
	a, err := answerOf(reply, err)
	var told *loss
	var after func()
	e.mu.Lock()
	h := g.h
	if h != nil {
		h.releasing--
	}
	if h != nil && e.holds[h.holdKey] != h {
		h = nil // lost or dropped meanwhile
	}
	k := holdKey{g.cmd.Key, g.owner}
	if g.next != nil {
		after = e.handedLocked(g, a, err)
	}
	var out []byte
	switch {
	case err != nil:
		if h != nil {
			h.doubtful = h.doubtful || errors.Is(err, ErrInDoubt)
			h.lease.Continue()
		}
		out = appendFailure(nil, err)
	case a[0] == 1 || a[0] == 2:
		fence := a.at(1)
		if a[0] == 2 {
			fence = a.at(2)
		}
		if h != nil && h.fence <= fence {
			e.dropLocked(h)
		} else if h != nil {
			h.lease.Continue()
		}
		out = e.tellLostLocked(g.c, k, redcon.AppendInt(nil, 1))
	case a[0] == 0:
		if h != nil && h.fence == a.at(2) {
			h.count = a.at(1)
			if h.fixed {
				h.lease.Continue()
			} else if !h.lease.Resume(g.sentAt, h.entry()) {
				h.lease = e.dog.Track(h.entry(), g.sentAt)
			}
		} else if h != nil {
			h.lease.Continue()
		}
		out = e.tellLostLocked(g.c, k, redcon.AppendInt(nil, 0))
	default:
		// Not the holder, or not by the grant that was named.
		mine := h != nil && (a[0] == -1 || h.fence < a.at(1))
		if mine && !h.doubtful {
			told = e.loseLocked(h, watchdog.ReasonGone, g.c)
			out = lostLease()
		} else if mine {
			e.dropLocked(h)
			out = notHeld()
		} else {
			if h != nil {
				h.lease.Continue()
			}
			out = e.tellLostLocked(g.c, k, notHeld())
		}
	}
	e.mu.Unlock()
	e.tell(told)
	if after != nil {
		e.jobs.submit(after)
	}
	return out
}

// tellLostLocked replaces the reply if the session has lost this lock and was not told by a reply yet.
func (e *Engine) tellLostLocked(c *client, k holdKey, reply []byte) []byte {
	if _, lost := c.lost[k]; lost {
		delete(c.lost, k)
		return lostLease()
	}
	return reply
}

func lostLease() []byte { return resp.AppendError(nil, resp.LostLease, "the lease has ended before") }

func notHeld() []byte {
	return resp.AppendError(nil, resp.NotHeld, "the owner does not hold this lock")
}

// handedLocked settles the waiter that was to get the lock, and returns what has to be done without locks.
func (e *Engine) handedLocked(g *giving, a answer, err error) (after func()) {
	w := g.next
	w.sentAt = g.sentAt
	switch {
	case err == nil && a[0] == 2:
		if f := e.opts.Events.HandedOver; f != nil {
			f()
		}
		return e.settleLocked(w, answer{1, a.at(1), 1}, nil)
	case err != nil && !errors.Is(err, ErrInDoubt):
		err = ErrUnsent // the release was refused: nothing happened to the waiter
		return e.settleLocked(w, nil, err)
	case err != nil:
		return e.settleLocked(w, nil, err)
	}
	// Not handed over. If the lock was freed, its message wakes the waiter along with everybody else; else the next
	// attempt tells how things stand.
	w.again = w.again || a[0] != 1
	return e.settleLocked(w, answer{0, -1}, nil)
}

func (e *Engine) startExtend(s Session, cmd Command) {
	owner := cmd.Owner
	e.mu.Lock()
	c := e.clientLocked(s)
	if owner == "" {
		owner = c.owner
	}
	k := holdKey{cmd.Key, owner}
	h := e.holds[k]
	_, lost := c.lost[k]
	if h == nil && lost {
		// Redis may have the key for an instant more. Who was told of the loss must not get it back unawares.
		delete(c.lost, k)
		e.mu.Unlock()
		s.Answer(lostLease())
		return
	}
	e.mu.Unlock()
	send := func() {
		sentAt := time.Now()
		s.Script(Call{
			Script: e.scripts.extend,
			Keys:   arguments(cmd.Key, channelOf(cmd.Key), queueOf(cmd.Key)),
			Args:   arguments(owner, millis(cmd.Lease), e.opts.Publish),
			GoOn:   true,
			Done: func(reply resp.Value, err error) []byte {
				a, err := answerOf(reply, err)
				return e.extended(c, h, k, cmd.Lease, sentAt, a, err)
			},
		})
	}
	if h == nil {
		send()
		return
	}
	ordered(s, h.lease, send, func() { h.lease.Continue() })
}

// extended turns the answer of an extension into the reply. The watchdog goes on with the new length. Session locked.
func (e *Engine) extended(
	c *client, h *hold, k holdKey, lease time.Duration, sentAt time.Time, a answer, err error,
) (out []byte) {
	var told *loss
	e.mu.Lock()
	if h != nil && e.holds[k] != h {
		h = nil
	}
	switch {
	case err != nil:
		if h != nil {
			h.lease.Continue()
		}
		out = appendFailure(nil, err)
	case a[0] == 1:
		if h != nil && h.fence == a.at(1) {
			h.ttl, h.count = lease, a.at(2)
			if !h.lease.Resume(sentAt, h.entry()) {
				h.lease = e.dog.Track(h.entry(), sentAt)
			}
		} else if h != nil {
			h.lease.Continue()
		}
		out = e.tellLostLocked(c, k, redcon.AppendInt(nil, 1))
	case h != nil && !h.doubtful:
		told = e.loseLocked(h, watchdog.ReasonGone, c)
		out = lostLease()
	case h != nil:
		e.dropLocked(h)
		out = notHeld()
	default:
		out = e.tellLostLocked(c, k, notHeld())
	}
	e.mu.Unlock()
	e.tell(told)
	return out
}

func (e *Engine) startForce(s Session, cmd Command) {
	s.Script(Call{
		Script: e.scripts.force,
		Keys:   arguments(cmd.Key, channelOf(cmd.Key), queueOf(cmd.Key)),
		Args:   arguments(e.opts.Publish),
		GoOn:   true,
		Done: func(reply resp.Value, err error) []byte {
			a, err := answerOf(reply, err)
			if err != nil {
				return appendFailure(nil, err)
			}
			if a[0] == 1 {
				e.forced(cmd.Key)
			}
			return redcon.AppendInt(nil, a[0])
		},
	})
}

// forced tells the holder, if it is here, and wakes the waiters here. Holders elsewhere learn it from their next
// renewal.
func (e *Engine) forced(key string) {
	var told []*loss
	e.mu.Lock()
	for k, h := range e.holds {
		if k.key == key {
			told = append(told, e.loseLocked(h, ReasonForced, nil))
		}
	}
	e.kickLocked(key)
	e.mu.Unlock()
	for _, l := range told {
		e.tell(l)
	}
}

// orphan is a hold whose last session has ended.
type orphan struct {
	h     *hold
	grace time.Duration
}

// partLocked takes a session that has ended out of a hold, and reports whether it was the last.
func (e *Engine) partLocked(h *hold, c *client) (o orphan, last bool) {
	i := slices.IndexFunc(h.holders, func(o holder) bool { return o.c == c })
	grace := h.holders[i].grace
	h.holders = slices.Delete(h.holders, i, i+1)
	delete(c.holds, h)
	if len(h.holders) > 0 {
		return orphan{}, false
	}
	e.dropLocked(h)
	return orphan{h, grace}, true
}

// settleOrphan applies GRACE.
func (e *Engine) settleOrphan(o orphan) {
	if o.grace < 0 {
		return
	}
	e.applyGrace(o.h, o.grace)
}

// applyGrace shortens what is left in Redis of a dropped hold, after a renewal that may be on its way.
func (e *Engine) applyGrace(h *hold, grace time.Duration) {
	h.lease.Pause(func() {
		e.persist("apply grace", h.key, h.ttl, func(ctx context.Context) error {
			_, err := e.own.run(ctx, e.scripts.grace, []string{h.key, channelOf(h.key), queueOf(h.key)},
				[]string{h.owner, itoa(h.fence), millis(grace), e.opts.Publish})
			return err
		})
	})
}

// giveBack releases holds that no client was told of, or that it gave back while it hung up. It does not block.
func (e *Engine) giveBack(key, owner string, fence, holds int64) {
	for range holds {
		e.persist("give a lock back", key, e.opts.Lease, func(ctx context.Context) error {
			return e.releaseOnce(ctx, key, owner, fence)
		})
	}
}

func (e *Engine) releaseOnce(ctx context.Context, key, owner string, fence int64) error {
	_, err := e.own.run(ctx, e.scripts.release, []string{key, channelOf(key), queueOf(key)},
		[]string{owner, "0", itoa(fence), e.opts.Publish})
	return err
}

// persist runs a clean-up as jobs until it succeeds, Redis refuses it, or limit has passed: by then the lease it is
// about has run out.
func (e *Engine) persist(what, key string, limit time.Duration, task func(context.Context) error) {
	until := time.Now().Add(limit)
	pause := retryFirst
	var once func()
	once = func() {
		ctx, cancel := context.WithTimeout(e.life, answerLimit)
		err := task(ctx)
		cancel()
		var refusal redisError
		switch {
		case err == nil:
		case errors.As(err, &refusal), e.life.Err() != nil, time.Now().After(until):
			e.log.Warn("clean-up given up", zap.String("task", what), logKey(key), zap.Error(err))
		default:
			e.jobs.after(pause, once)
			pause = min(2*pause, retryLast)
		}
	}
	e.jobs.submit(once)
}

// Pauses between attempts while Redis does not answer.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
)

func logKey(key string) zap.Field { return zap.String("key", key) }
