package table

// Waiter is one acquire: it waits, or may have to. The caller sets the exported fields before its first event, but for
// those that Begin sets.
type Waiter struct {
	Key    // of the hold that it asks for. Each new call of an owner of the session's own has another one
	By     *Session
	Asked  Kind   // the kind that it has asked for. An exclusive hold may be deepened whatever that is
	Name   string // of the acquire, for a named owner: others that acquire for it are woken with this one. Else empty
	Fair   bool   // it has a place of its own in the queue in Redis; else it is a plain waiter, one of the crowd
	Placed bool   // it may have taken that place
	Place  string // under which the owner stands in the queue in Redis
	Wake   string // the channel on which it is woken by name
	Limit  int    // of a permit: how many may hold the lock by its word; 0: of another kind
	Tag    any    // the caller's own

	// The hold that the session has a part in when the acquire begins, and that part; nil: it has none. The table forgets
	// the part when the session ends.
	Had    *Hold
	Before Part

	deepens   *Hold  // the hold that it is to deepen, until its outcome; nil: none
	deepening bool   // Deepening has been called
	streak    Streak // of the hand-over on its way

	queue *Queue   // nil: it has not joined, or has been removed
	sub   *channel // Wake

	state   state
	woken   bool    // while an attempt was on its way
	first   bool    // of the queue in Redis, as it was told by name
	failed  bool    // the latest attempt came to nothing: the waiter may have no place in Redis
	doubt   bool    // an attempt was not answered: it is unknown whether the waiter has the lock
	pending Outcome // how it leaves if the attempt on its way comes to nothing
	err     error   // of pending
	turn    turn    // of the attempt on its way

	inLine, inSub, inPlace, inSet node[*Waiter]
}

// state says what may happen to a waiter.
type state uint8

const (
	outside state = iota // of every queue
	waiting              // wake-ups, its deadline, the end of its client
	asking               // an attempt is on its way, or it may be the next in a hand-over
)

// turn is what an attempt of the first waiter at the crowd's place does for all of them.
type turn struct {
	first   bool // it is such an attempt
	stays   bool // the place stays in the queue if the lock is granted
	enqueue bool // the place is taken if the lock is not granted
}

// Waits reports whether the waiter is in a queue.
func (w *Waiter) Waits() bool { return w.queue != nil }

// Asks reports whether an attempt of the waiter is on its way, and whether another follows.
func (w *Waiter) Asks() (asks, again bool) { return w.state == asking, w.woken }

// First reports whether its attempt on its way is made at the crowd's place; stays and enqueue say what becomes of the
// place if the lock is granted, and if it is not.
func (w *Waiter) First() (first, stays, enqueue bool) {
	return w.turn.first, w.turn.stays, w.turn.enqueue
}

// Outcome is how a waiter leaves its queue.
type Outcome uint8

// The outcomes.
const (
	NoOutcome Outcome = iota // it waits
	Granted                  // it has the lock
	Null                     // it may not wait any longer
	Error                    // the same, with an error for the reason
	Gone                     // its client has gone: no reply is sent
)

// Join makes a waiter of an acquire that Redis has answered with Busy. m is what was noted before that attempt.
func (t *waits) Join(w *Waiter, n Names, m Mark, a Answer) {
	q := t.locks[n.Key].queue
	if q == nil {
		q = &Queue{table: t, names: n, places: lines[string, *Waiter]{}}
		q.base = t.listen(n.Channel)
		q.base.queues.Push(&q.inBase, q)
		t.locks.setQueue(n.Key, q)
		q.index, t.queues = len(t.queues), append(t.queues, q)
	}
	if q.empty() { // the queue is new, or lingers: a message or a timer has found no waiter in it
		q.woken, q.timed, q.failed, q.pause = false, false, false, 0
	}
	t.waiters.Push(&w.inSet, w)
	w.queue, w.state, w.pending, w.err = q, waiting, NoOutcome, nil
	w.first = w.Fair && a.Place == Head
	w.By.waits = w
	if w.Named() {
		w.sub = t.listen(w.Wake)
		w.sub.waiters.Push(&w.inSub, w)
	}
	q.line(w.Fair).Push(&w.inLine, w)
	q.hear(a)
	if w.Fair {
		q.places.Push(w.Place, &w.inPlace, w)
		q.refresh()
		q.forget()
	}
	first := q.plain.First() == w
	switch missed := m.base.missed(q.base) || m.named.missed(w.sub); {
	case w.Named() && missed:
		t.try(w)
	case w.Fair:
		q.notYet(w, a)
	case first && (missed || a.inTurn() || a.Form != 0):
		// A place in the queue decides who gets a free lock, or one that is shared.
		q.tryPlain()
	case first && q.pause == 0:
		q.expect(a.TTL)
	}
	if !q.timed {
		q.expect(a.TTL)
	}
}

// TimedOut is the end of a waiter's own wait.
func (t *waits) TimedOut(w *Waiter) { t.Remove(w, Null, nil) }

// Left says that the waiter's client has gone.
func (t *waits) Left(w *Waiter) { t.Remove(w, Gone, nil) }

// Remove takes a waiter out with that outcome: Null, Error or Gone. If its attempt is on its way, the outcome is for
// the case that the attempt comes to nothing. It reports whether that has changed how the waiter leaves.
func (t *waits) Remove(w *Waiter, o Outcome, err error) bool {
	switch {
	case w.queue == nil:
		return false
	case w.state == asking:
		before := w.pending
		if o >= before {
			w.pending, w.err = o, err
		}
		return o > before
	}
	q := w.queue
	first := q.plain.First() == w
	unasked := q.woken || w.sub != nil && !w.sub.ready // it could not ask: its own subscription was not confirmed
	t.remove(w, o, err)
	// No waiter has asked since, or the next one may share the lock.
	if next := q.plain.First(); first && next != nil && (unasked || next.Kind != w.Kind || !next.Kind.Reenters()) {
		t.try(next)
	}
	return true
}

// RemoveAll takes out all waiters of all locks: the proxy stops.
func (t *waits) RemoveAll(err error) {
	t.stopped = true
	for _, q := range t.lingering.All() {
		q.forget()
	}
	t.each(t.waiters.All(), func(w *Waiter) { t.Remove(w, Error, err) })
}

// Withdraw is for a waiter that does not join after all. Its place in Redis, if it has taken one, is given up, and a
// Finish follows unless the outcome is Gone.
func (t *waits) Withdraw(w *Waiter, key string, o Outcome, err error) {
	place := t.abandoned(w, key)
	if o != Gone {
		t.reply(w, key, place, o, err)
	} else if place != "" {
		t.depart(key, place, nil)
	}
}

// remove takes a waiter out of its queue.
func (t *waits) remove(w *Waiter, o Outcome, err error) {
	q := w.queue
	t.waiters.Remove(&w.inSet)
	w.queue, w.state, w.By.waits = nil, outside, nil
	if w.sub != nil {
		w.sub.waiters.Remove(&w.inSub)
		t.unlisten(w.sub)
		w.sub = nil
	}
	q.line(w.Fair).Remove(&w.inLine)
	place := ""
	if w.Fair {
		q.places.Remove(w.Place, &w.inPlace)
		if o != Granted {
			place = t.abandoned(w, q.names.Key)
		}
	} else if q.plain.Len() == 0 {
		place = q.abandonPlace()
	}
	if !q.queued() {
		q.linger()
	}
	if q.empty() && !q.lingers {
		q.end()
	}
	t.reply(w, q.names.Key, place, o, err)
}

// reply replies to a waiter that is out of its queue, and has the place leave the queue in Redis that it was the last
// one to need; empty: there is none. Without a grant, the reply comes when the place has left: a client that asks again
// at once must not be taken out by the clean-up of its earlier wait, nor find the lock reserved for it.
func (t *waits) reply(w *Waiter, key, place string, o Outcome, err error) {
	e := Effect{Op: Finish, Waiter: w, Outcome: o, Err: err, Doubt: w.doubt}
	if place != "" && (o == Null || o == Error) {
		t.depart(key, place, &e)
		return
	}
	t.emit(e)
	if place != "" {
		t.depart(key, place, nil)
	}
}
