package lockcmds

import (
	"context"
	"errors"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
	"lockproxy/internal/watchdog"
)

// A session that has authenticated as another user belongs to another engine, but its holds are still its own. So the engine that has
// a hold carries out the commands about it, on the session's own connection and with the session's present rights. Everything else,
// waiting too, is done by the session's present engine, its home.

// Keeps reports whether the engine keeps a hold of the session that the command is about.
// Requires the session lock.
func (e *Engine) Keeps(session uint64, cmd grammar.Command) bool {
	defer e.failStop()
	switch cmd.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock, grammar.Unlock, grammar.ExtendLock:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clients[session]
	if c == nil {
		return false
	}
	k := holdKey{cmd.Key, cmd.Owner}
	if k.owner == "" {
		k.owner = c.owner
	}
	if h := e.holds[k]; h != nil {
		_, holds := c.holds[h]
		return holds
	}
	return false
}

// StartFor is Start for a session whose home is another engine of the same database by now. Requires the session lock.
func (e *Engine) StartFor(s Caller, cmd grammar.Command, home *Engine) {
	defer e.failStop()
	switch cmd.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock:
		e.startAcquire(s, cmd, e.clock.Now(), home)
	default:
		e.Start(s, cmd)
	}
}

// goHome has the session's home start an acquire anew, if that is another engine: this engine has no hold that the acquire could
// deepen. Requires the session lock.
func (w *waiter) goHome() bool {
	if w.home == w.e {
		return false
	}
	w.e.mu.Lock()
	ended := w.c.ended
	w.finishLocked()
	w.e.mu.Unlock()
	if !ended {
		again := w.caller
		again.NothingPending = false // the answer to this attempt is being dealt with
		w.home.startAcquire(again, w.cmd, w.began, w.home)
	}
	return true
}

// runAs runs a script on the connection of the identity that acquired a hold last. If that identity's rights or connection do not
// suffice any more, the script runs on the connection of the identity that acquired it first.
func (e *Engine) runAs(ctx context.Context, by redislink.Node, c script.Call) (resp.Value, error) {
	v, err := runOn(ctx, by, c)
	if by != e.own.Node(c.Keys[0]) && (errors.Is(err, ErrUnsent) || v.IsError() && isFinal(script.Error(v.Str))) {
		return e.own.run(ctx, c)
	}
	return v, err
}

// renewSome renews a batch, or the halves of one that Redis refuses as a whole: a right that is missing for one lock must
// not cost the others their lease. Renewals without a verdict are tried again.
func (e *Engine) renewSome(ctx context.Context, by redislink.Node, batch []watchdog.Renewal, verdicts []watchdog.Verdict) error {
	err := e.renewAll(ctx, by, batch, verdicts)
	if len(batch) == 1 || !isFinal(err) {
		return err
	}
	half := len(batch) / 2
	first := e.renewSome(ctx, by, batch[:half], verdicts[:half])
	second := e.renewSome(ctx, by, batch[half:], verdicts[half:])
	if first != nil && second != nil {
		return err
	}
	return nil
}
