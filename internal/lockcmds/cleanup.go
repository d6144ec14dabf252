package lockcmds

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
)

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
	if grace != 0 {
		e.keepLocked(h)
	}
	return orphan{h, grace}, true
}

// settleOrphan applies GRACE.
func (e *Engine) settleOrphan(o orphan) {
	if o.grace < 0 {
		return
	}
	e.applyGrace(o.h, o.grace)
}

// grantOf names a grant of a lock to an owner.
type grantOf struct {
	holdKey
	fence int64
}

// giveBack releases holds that no client was told of, or that it gave back while it hung up. It does not block. over says that
// they are of the own owner of a session that has ended, so nobody can have acquired for it since: only then may a release
// be repeated that may have been done.
func (e *Engine) giveBack(g grantOf, holds int64, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.giveBackLocked(g, holds, over)
}

func (e *Engine) giveBackLocked(g grantOf, holds int64, over bool) {
	r := e.returning[g.holdKey]
	if r == nil {
		r = &returns{}
		e.returning[g.holdKey] = r
	}
	r.n++
	e.persist("give a lock back", g.key, e.opts.Lease, func() { e.returned(g.holdKey) }, func(ctx context.Context) error {
		err := e.takeOff(ctx, g, holds)
		if !over {
			return e.onceOnly(g.key, err)
		}
		return err
	})
}

// returns is the give-backs of one owner's holds that are on their way, and the commands that wait for them. They travel on the
// engine's own connection: a command that the session sends now might come first, or second, and its answer would not say which.
type returns struct {
	n     int
	queue []func()
}

// deferLocked puts a command off until nothing is being given back of its owner's holds, and reports whether it does.
func (e *Engine) deferLocked(s Session, c Command, k holdKey) bool {
	r := e.returning[k]
	if r == nil {
		return false
	}
	r.queue = append(r.queue, func() {
		if !s.Enter(func() { e.Start(s, c) }) && c.Verb == Unlock {
			// The client asked for the release and hung up before it could be sent.
			e.giveBack(grantOf{k, c.Fence}, 1, c.Owner == "")
		}
	})
	return true
}

func (e *Engine) returned(k holdKey) {
	e.mu.Lock()
	r := e.returning[k]
	if r.n--; r.n > 0 {
		e.mu.Unlock()
		return
	}
	delete(e.returning, k)
	e.mu.Unlock()
	for _, start := range r.queue {
		start()
	}
}

// onceOnly takes a clean-up for done that may have been: done twice it would take off what the owner holds by others.
func (e *Engine) onceOnly(key string, err error) error {
	if errors.Is(err, ErrInDoubt) {
		e.log.Warn("clean-up in doubt is not repeated", logKey(key), zap.Error(err))
		return nil
	}
	return err
}

// takeOff gives back so many holds of a grant, fence 0: of any.
func (e *Engine) takeOff(ctx context.Context, g grantOf, holds int64) error {
	_, err := e.own.run(ctx, e.scripts.grace, []string{g.key, channelOf(g.key), queueOf(g.key)},
		[]string{g.owner, itoa(g.fence), "0", e.opts.Publish, itoa(holds)})
	return err
}

// persist runs a clean-up as jobs until it succeeds, Redis refuses it, or limit has passed: by then the lease it is
// about has run out. Then it calls done, if there is one, without locks.
func (e *Engine) persist(what, key string, limit time.Duration, done func(), task func(context.Context) error) {
	until := time.Now().Add(limit)
	pause := retryFirst
	e.tending.Add(1)
	end := func() {
		if done != nil {
			done()
		}
		e.tending.Add(-1)
	}
	var once func()
	once = func() {
		ctx, cancel := context.WithTimeout(e.life, answerLimit)
		err := task(ctx)
		cancel()
		var refusal redisError
		switch {
		case err == nil:
			end()
		case errors.As(err, &refusal), e.life.Err() != nil, time.Now().After(until):
			end()
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
