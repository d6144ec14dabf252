package lockcmds

import (
	"cmp"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// This file ends grants by force, and tells of it.
//
//	startForce, releaseGrant ──► forced ──► Forced: the holder and the waiters here
//	                                      ├──► Options.Forced: those of other engines ──► their Forced
//	                                      └──► tellAgain: those of other proxies, as the script has done
//	a message of another proxy ──► look ──► Redis: is the grant over? ──► Forced

// startForce executes FORCEUNLOCK.
func (e *Engine) startForce(s contract.Caller, cmd grammar.Command) {
	call := script.Force{Key: cmd.Key, Owner: cmd.Owner, Fence: script.AnyGrant}.Call
	reply := func(o callOutcome) []byte {
		all, err := decoded(o.Reply, o.Err, script.DecodeForced)
		if err != nil {
			return failureReply(err)
		}
		for _, a := range all {
			e.audit("lock ended by FORCEUNLOCK", cmd.Key, a,
				zap.String("client", s.Info.Addr), logging.Text("client_name", s.Info.Name))
			e.forced(cmd.Key, a)
		}
		return redcon.AppendInt(nil, int64(min(1, len(all))))
	}
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainCommand{Call: call, Reply: reply}})
}

// audit logs the end of a grant by force.
func (e *Engine) audit(what, key string, ended script.Forced, by ...zap.Field) {
	e.opts.Logger.Log(logging.Audit, what, append([]zap.Field{
		logging.Text("key", key), logging.Text("owner", ended.Owner), zap.Int64("fence", ended.Fence),
		zap.String("user", cmp.Or(e.opts.Account.User, "default")),
	}, by...)...)
}

// forced says that this engine has ended a grant by force, or by its handle. Requires no locks of this package.
func (e *keeper) forced(key string, ended script.Forced) {
	e.Forced(key, ended)
	if ended.Fence > 0 {
		e.tellAgain(key, ended)
	}
	if others := e.opts.Forced; others != nil {
		e.calls.Background(jobs.Urgent, func() { others(key, ended) })
	}
}

// Forced says that a grant was ended by force: a holder of this engine is told, and waiters ask. Its end by its handle
// is no loss. A holder here whose grant is still on its way learns it from its next renewal. Requires no locks of this
// package.
func (e *keeper) Forced(key string, ended script.Forced) {
	defer e.failstop.Guard()
	e.step(func(t *table.Table) {
		h := t.HoldByFence(key, ended.Fence)
		switch {
		case h == nil:
			if loss := t.Suspected(key, ended.Fence); loss != nil && loss.Key.Owner == ended.Owner && ended.Handle {
				t.ReleasedElsewhere(loss)
			}
		case h.Owner != ended.Owner:
		case ended.Handle:
			t.Drop(h)
		default:
			t.Lost(h, string(reasonForced), true, nil)
		}
		t.Wake(key)
	})
}

// tellAgain tells the proxies of a grant that was ended by force once more: the holder's may not have listened yet, or
// not at that moment. Only one that has the hold still takes notice.
func (e *keeper) tellAgain(lock string, ended script.Forced) {
	e.calls.After(tellAgainAfter, jobs.Urgent, func() {
		m := script.Message{Channel: script.ForcedChannel, Text: ended.Message(lock)}
		call := script.Tell{Key: lock, Messages: []script.Message{m}}.Call()
		if _, err := runFor(e.life, e.client, call, script.DecodeDone); err != nil {
			e.opts.Logger.Debug("the end of a grant was not told", zap.Error(err))
		}
	})
}

// tellAgainAfter is how much later: a proxy that has just granted its first lock listens by then.
const tellAgainAfter = time.Second

// look asks Redis whether the grant of a message goes on, if it is held here. If it is over, that is a loss, unless the
// message proves that it was released by its handle. Requires no locks.
func (e *keeper) look(m script.ForcedMessage) {
	defer e.failstop.Guard()
	var h *table.Hold
	e.step(func(t *table.Table) {
		// Redis may have said already that the grant is over.
		if loss := t.Suspected(m.Lock, m.Fence); loss != nil && m.IsHandle(loss.Key.Owner) {
			t.ReleasedElsewhere(loss)
		}
		if h = t.HoldByFence(m.Lock, m.Fence); h != nil && !h.Look(m.IsHandle(h.Owner)) {
			h = nil
		}
	})
	if h == nil {
		return
	}
	e.calls.Background(jobs.Urgent, func() {
		for again := true; again; e.step(func(*table.Table) { again = h.Looked() }) {
			held, err := runFor(e.life, e.client, script.Info{Key: m.Lock, Owner: h.Owner, Fence: m.Fence}.Call(), script.DecodeDescribed)
			if err == nil && held.Find(m.Fence) == nil {
				over := script.Forced{Owner: h.Owner, Fence: m.Fence}
				e.step(func(*table.Table) { over.Handle = h.Proven() }) // the message that proves it may be a later one
				e.Forced(m.Lock, over)
			}
		}
	})
}

// hear has the losses that are due told when all messages are in that Redis has published by now. A message may be late
// because the proxy has little of a processor. But Redis confirms a subscription behind the messages that it has sent
// on the same connection, so the channel is subscribed once more. One that is later than hearLimit may end the wait of
// other losses too soon.
func (e *keeper) hear() {
	e.mu.Lock()
	e.hearing = e.opts.Clock.AfterFunc(hearLimit, e.heard)
	e.mu.Unlock()
	e.client.Node(script.ForcedChannel).Subscribe(script.ForcedChannel)
}

// heard follows when the subscription is confirmed or refused, and after hearLimit: its connection may be broken.
func (e *keeper) heard() {
	e.step(func(t *table.Table) {
		if e.hearing != nil {
			e.hearing.Stop()
			e.hearing = nil
			t.SuspectsDue()
		}
	})
}

// hearLimit is how much later than otherwise a loss is told that could be none.
const hearLimit = 250 * time.Millisecond
