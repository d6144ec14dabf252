package lockcmds

import (
	"context"
	"errors"
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

// This file has one acquire, from its first attempt to its reply:
//
//	start ──► Begin ──► one script on the session's own lane or pin ──► Answered ──granted──────┐
//	  │ plain waiters are here already                    │ busy, and the client may wait       │
//	  └─────────────────────► await ◄─────────────────────┘                                     │
//	                            │ Join                                                          ▼
//	                            ▼                                                            granted ──► reply
//	                      the table ──► its effects                                             ▲
//	                            ▲         Subscribe ──► redislink ──► Confirmed, Published      │
//	                            │         Attempt ──► one script, as a job ──► Answered ──► deliver
//	                            │         Finish ──► leftLocked ──► without: null or an error   ▲
//	granted ──SYNC──► confirmer ──► record, or dropUnsynced ──► the reply                       │
//	                            └── Offer: a release here grants in the same step ──────────────┘
//
// termsOf works out what the client has asked for, and the kind of the lock makes the script calls (kinds.go).
// A wait that was slow is logged at its end. Acquires are data: they have no goroutine. What an acquire has done and
// its client is not to have is rolled back (rollback.go).
//
// Invariants:
//   - Every grant ends in the client's reply with the lease watched, or in a rollback.
//   - A waiter gets exactly one reply, unless its session has ended.
//   - A deciding attempt of a waiter begins after the confirmation of its subscription. Every later message, reconnect
//     and end of the holder's lease causes another attempt. A waiter that joins other waiters needs no attempt of its
//     own: the first one has made it.
//   - A null reply means that Redis refused, or that the grant has been rolled back.

// acquire is one acquire, from its first attempt on the session's own connection to its answer.
type acquire struct {
	table.Waiter // its state in the table; guarded by keeper.mu

	// Immutable after start.
	acquireTerms // Sync is never SyncAll: the number is known
	e            *keeper
	s            *clientSession // that acquires
	began        time.Time
	// The holder when it began to wait; set before it joins its wait queue. nil: not of interest.
	behind *party
	sent   callRequest // the first attempt, and one behind the end of its wait
	buf    [24]byte    // for the reply with any fence

	// Guarded by keeper.mu.
	unsynced grant      // that replicas are to confirm; the zero value: there is none
	timer    jobs.Timer // its own deadline
	blocks   jobs.Timer // until it is logged that it waits for a hold of its own connection; nil: it does not
	mark     table.Mark // before the first attempt
	waited   bool       // it has been in a wait queue. Written with the session lock, too
	undone   bool       // its hold in a grant of others was released
}

// newAcquireLocked begins an acquire. Requires the session lock and keeper.mu.
func (e *keeper) newAcquireLocked(s *contract.Caller, cmd *grammar.Command, w *acquire) {
	session, key := e.beginLocked(s, cmd)
	w.e, w.s = e, session
	w.Waiter = table.Waiter{
		Key: key, By: &session.Session, Asked: askedKind(cmd), Fair: cmd.Verb == grammar.FairLock, Placed: cmd.Wait != 0,
		Limit: cmd.Limit, Tag: w,
	}
	if cmd.Owner != "" {
		w.Name = session.OwnerFor(e.nextName())
	}
	e.table.Begin(&w.Waiter)
}

// startAcquire starts an acquire. It does not keep its arguments, so that most commands stay on the stack. Requires the
// session lock.
func (e *Engine) startAcquire(s *contract.Caller, cmd *grammar.Command) {
	now := e.opts.Clock.Now()
	w := &acquire{acquireTerms: termsOf(cmd, e.defaults()), began: now}
	if w.Sync == SyncAll {
		if w.Sync = e.replicas(cmd.Key); w.Sync == 0 {
			s.Reply(noReplicasReply())
			return
		}
	}
	e.mu.Lock()
	e.newAcquireLocked(s, cmd, w)
	if cmd.Owner == "" {
		w.s.Asks(cmd.Key)
	}
	if w.HoldsShared() {
		e.mu.Unlock()
		s.Reply(w.replyTo(table.Error, errHoldsShared))
		return
	}
	w.name()
	w.sent = callRequest{Session: w.s.Conn, For: w}
	w.s.asks = w
	joins := s.NothingPending && w.Placed && !w.OfNamed() && e.table.MayJoin(&w.Waiter) && !w.Deepens()
	atOnce := true
	if !joins {
		if w.Placed { // one that joins must ask, if it turns out to be the first after all
			w.mark = e.table.Mark(&w.Waiter)
		}
		if h := e.table.Deepening(&w.Waiter); h != nil {
			send := func() { w.send(e.opts.Clock.Now()) }
			unsent := func() { e.step(func(t *table.Table) { t.NotDeepened(&w.Waiter) }) }
			atOnce = e.pauseLocked(w.s.Conn, h, w.Lease, send, unsent)
		}
	}
	e.mu.Unlock()
	switch {
	case joins:
		if reply := w.await(script.Acquired{PTTL: script.NoTTL}); reply != nil {
			s.Reply(reply)
		}
	case atOnce:
		w.send(now)
	}
}

// name gives the waiter its place in the queue, if it has one of its own.
func (w *acquire) name() {
	if !w.Named() {
		return
	}
	name := w.s.Name
	if w.OfNamed() { // all sessions of the owner are woken by it
		name = w.Owner
	}
	w.Place, w.Wake = script.PlaceOf(w.Lock, name), script.NameChannel(w.Lock, name)
}

// anew has the acquire ask anew, because the grant that it got or was to deepen has ended. An owner of the session's own
// gets a new name. Requires no locks of this package.
func (w *acquire) anew() {
	w.e.step(func(t *table.Table) {
		t.Anew(&w.Waiter, w.s.OwnerFor(w.e.nextName()))
		w.undone = false
		w.name()
	})
	w.e.calls.Background(jobs.Urgent, func() { w.askAgain(script.Acquired{}) })
}

// send makes the first attempt. A fair one takes its place in the queue in the same step, so the order is that in which
// Redis gets them. Requires the session lock.
func (w *acquire) send(now time.Time) {
	w.e.calls.SendAt(now, w.question(), &w.sent)
}

// lasts is how long the hold that the acquire is to deepen may last without a renewal; 0: there is none, or it has ended.
// Requires no locks of this package.
func (w *acquire) lasts() time.Duration {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return w.Lasts()
}

// Answered is the outcome of the first attempt, or of one by an acquire that may not wait any longer. Requires the
// session lock, or that the session has ended.
func (w *acquire) Answered(o callOutcome) []byte {
	a, err := decoded(o.Reply, o.Err, script.DecodeAcquired)
	switch {
	case errors.Is(err, contract.ErrInDoubt):
		w.rollBack(0, 0, nil) // first: the lease is what the client was told so far
		w.e.step(func(t *table.Table) { t.Doubt(&w.Waiter, w.Lease, o.SentAt) })
		w.withdraw(table.Gone, nil) // it may have a place in the queue
		return contract.Unanswered
	case isOverwritten(err) && w.overwritten(): // the loss is the answer
		w.finish()
		return lostLeaseReply()
	case isPostponed(err) && w.DeepensOnly() && w.lasts() == 0:
		w.anew()
		return nil
	case isPostponed(err) && w.Wait != 0 && w.lasts() == 0: // it asks again as a waiter
		return w.await(script.Acquired{PTTL: script.NoTTL})
	case err != nil:
		return w.fail(err)
	case a.Granted:
		w.e.noteDamage(w.Lock, a.Damage)
		return w.granted(grantOf(a, o.SentAt))
	}
	if a.Deadlock {
		return w.fail(errHoldsShared)
	}
	w.e.step(func(t *table.Table) { t.HoldIsOver(&w.Waiter) })
	switch {
	case a.Gone:
		w.anew()
		return nil
	case w.Wait == 0:
		w.finish()
		return nullReply(w.s.Proto)
	}
	return w.await(a)
}

// overwritten says that the key holds something else than a lock. It reports whether the session held a lock there.
func (w *acquire) overwritten() (lost bool) {
	w.e.step(func(t *table.Table) { lost = t.Overwritten(&w.Waiter) })
	return lost
}

// fail ends the acquire with an error. Requires the session lock, or that the session has ended.
func (w *acquire) fail(err error) []byte {
	if w.waited { // it may have a place in the queue
		w.withdraw(table.Error, err)
		return nil
	}
	w.finish()
	return w.replyTo(table.Error, err)
}

// Postponed implements lockCommand. A client that waits for a lock waits for its hash slot, too, in the wait queue. An
// acquire that deepens a hold is sent again until the hold has ended.
func (w *acquire) Postponed() (script.Call, time.Duration) {
	limit := w.lasts()
	if limit == 0 {
		return script.Call{}, 0
	}
	limit += 2 * longestPause // the last attempt finds that the hold has ended
	if w.Wait >= 0 {
		limit = min(limit, w.began.Add(w.Wait).Sub(w.e.opts.Clock.Now()))
	}
	return w.question(), limit
}

// finish ends the acquire. Requires no locks.
func (w *acquire) finish() { w.e.step(func(*table.Table) { w.finishLocked() }) }

// finishLocked is finish. The caller carries out the effects. Requires keeper.mu.
func (w *acquire) finishLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.s.asks == w {
		w.s.asks = nil
	}
	w.e.table.NotDeepened(&w.Waiter)
}

// reply answers a finished acquire from a job or a timer. Requires no locks.
func (w *acquire) reply(reply []byte) {
	w.e.failstop.Do(w.s.Conn, func() { w.s.Conn.Reply(reply) })
}

// grant is Redis's word that a waiter's owner holds the lock.
type grant struct {
	fence  int64
	count  int64 // holds of the owner
	sentAt time.Time
	synced bool // as many replicas as it needs have it

	exclusive bool // a shared acquire has deepened the owner's exclusive hold
}

func grantOf(a script.Acquired, sentAt time.Time) grant {
	return grant{fence: a.Fence, count: a.Holds, sentAt: sentAt, exclusive: a.Exclusive}
}

// granted turns a grant into the reply, with the lease watched from here on. Nil: the client cannot use the grant. Then
// the acquire goes on, or is answered when the grant has been rolled back. Requires the session lock, or that the
// session has ended.
func (w *acquire) granted(g grant) []byte {
	if w.Sync > 0 && !g.synced {
		w.confirm(g)
		return nil
	}
	now := w.e.opts.Clock.Now()
	record := table.Grant{
		Fence: g.fence, Count: g.count, SentAt: g.sentAt,
		TTL: w.Lease, Fixed: w.Fixed, MaxHold: w.MaxHold, Grace: w.Grace,
		Client: w.s.Client, Note: w.Note,
	}
	if g.exclusive {
		record.Kind = exclusive{}
	}
	w.e.mu.Lock()
	verdict := w.e.table.Granted(&w.Waiter, now, &record)
	if verdict == table.Usable {
		w.finishLocked()
		w.e.settleLocked()
	}
	w.e.mu.Unlock()
	switch {
	case verdict == table.Usable:
		if g.count > 1 && !w.OfNamed() {
			w.e.opts.Reentries.Note(w.s.Client, w.s.Library, w.Lock)
		}
		if f := w.e.opts.Events.Granted; f != nil {
			f(w.Verb, now.Sub(w.began))
		}
		w.noteEnd(now, waitGranted)
		reply := redcon.AppendInt(w.buf[:0], g.fence)
		if w.Note != "" {
			w.e.calls.Background(jobs.Urgent, func() { w.note(g.fence, reply) })
			return nil
		}
		return reply
	case verdict == table.ClientGone:
		w.drop(g, waitHungUp, nil)
		return nil
	}
	w.e.entries.Write(zap.WarnLevel, "a grant came too late to be used", "", logging.Text("key", w.Lock))
	// A lease that is shorter than a round trip would end before each grant, and the client would wait for ever.
	if verdict == table.ToldLost || w.mayWait() && !w.Chosen {
		w.rollBack(g.fence, g.count, func(bool) { w.anew() })
		return nil
	}
	w.drop(g, waitFailed, nullReply(w.s.Proto))
	return nil
}

// noteLimit is the longest wait of a client for its note.
const noteLimit = time.Second

// note writes the note of a grant as a renewal does, and then answers: who has got the answer finds the note. The lease
// stays as it is, because the client may have gone meanwhile. A grant without its note is a grant.
func (w *acquire) note(fence int64, reply []byte) {
	ctx, cancel := context.WithTimeout(w.e.life, noteLimit)
	defer cancel()
	one := script.Renewal{Key: w.Lock, Owner: w.Owner, Fence: fence, Note: w.Note}
	call := kindOf(w.Key).Renew(script.Renew{Renewals: []script.Renewal{one}, Shared: w.Kind.Shares()})
	_, _ = runFor(ctx, w.e.client, call, script.DecodeRenewed)
	w.reply(reply)
}

// drop ends an acquire with a grant that the client is not to have, and undoes it: the turn of the client is over.
// Requires no locks but that of the session.
func (w *acquire) drop(g grant, end waitEnd, reply []byte) {
	w.finish()
	w.noteEnd(w.e.opts.Clock.Now(), end)
	w.undo(g, reply)
}

// undo rolls back what the acquire has done, or may still do, and answers behind the first attempt of that: the client
// finds the lock as if it had not asked. If a grant is not rolled back then, the connection closes. The zero grant: it
// is not known whether there is one, because a waiter was not answered. reply nil: the client has gone, or is answered
// elsewhere. Requires no locks.
func (w *acquire) undo(g grant, reply []byte) {
	var tried func(ok bool)
	if reply != nil {
		tried = func(ok bool) {
			if !ok && g.fence != 0 {
				reply = contract.Unanswered
			}
			w.reply(reply)
		}
	}
	w.rollBack(g.fence, g.count, tried)
}
