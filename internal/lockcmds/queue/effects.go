package queue

import "time"

// Op says what an Effect asks for.
type Op uint8

// The effects. In parentheses: the fields that are set, and the event that follows.
const (
	Attempt      Op = iota // ask for the lock for a waiter (Waiter, Queue, Urgent; Answered)
	Reply                  // the waiter has left: tell its client (Waiter, Outcome, Err, Doubt)
	Subscribe              // listen to a channel (Channel; Subscribed after each confirmation, Published, SubscriptionRefused)
	Unsubscribe            // do not listen to it any more (Channel)
	SetTimer               // in place of the one before of that queue and kind (Queue, Timer, Delay, Spread; TimerDue)
	StopTimers             // all of the queue (Queue)
	Tidy                   // a timer (Delay; TidyDue)
	Patience               // a timer (Key, Delay; PatienceDue)
	RemovePlaces           // take places out of the queue in Redis (Key; Departing, then Departed)
	Refresh                // put off the deadlines of places in Redis (Queue, Places; Refreshed)
	ListPlaces             // ask for the queue in Redis (Queue; PlacesListed)
	AskHead                // ask for its first place (Queue, Look; HeadTold)
	RemoveHead             // remove its first place if the waiter there is stale (Queue, Place, Force; HeadRemoved)
	GoOn                   // call Continue, when others have had their turn
)

// Effect is something that the caller is to do.
type Effect struct {
	Op     Op
	Waiter *Waiter
	Queue  *Queue

	Key, Channel, Place string
	Places              []string

	Outcome Outcome
	Err     error // of the outcome Error
	Doubt   bool  // whatever the outcome, it is unknown whether the waiter's owner has the lock

	Timer         Timer
	Delay, Spread time.Duration // the delay, and a random length of time up to Spread more

	Urgent bool // the attempt is the first waiter's
	Look   bool // the question is the reaper's
	Force  bool // the waiter at the head was woken often enough
}

// Timer is one of a queue's timers.
type Timer uint8

// The timers of a queue.
const (
	Expiry      Timer = iota // the end of the holder's lease, or of the pause after an error
	Freshen                  // the deadlines of places in Redis
	Look                     // the reaper's
	TimersCount              // how many there are
)

func (s *Set) emit(e Effect) { s.effects = append(s.effects, e) }

// Effects returns what is to be done because of the events since the last call. The slice belongs to the caller until it calls Done.
func (s *Set) Effects() []Effect {
	effects := s.effects
	s.effects = nil
	return effects
}

// keptEffects is how long a slice of effects may be that is used again: a burst must not keep its memory.
const keptEffects = 256

// Done gives the slice of Effects back.
func (s *Set) Done(effects []Effect) {
	if s.effects == nil && cap(effects) <= keptEffects {
		clear(effects)
		s.effects = effects[:0]
	}
}

func (q *Queue) setTimer(t Timer, delay, spread time.Duration) {
	if t == Expiry {
		q.timed = true
	}
	q.set.emit(Effect{Op: SetTimer, Queue: q, Timer: t, Delay: delay, Spread: spread})
}

// TimerDue says that a timer of a queue has run out.
func (q *Queue) TimerDue(t Timer) {
	switch {
	case q.ended:
	case t == Expiry:
		q.woken = true
		q.wake()
	case t == Freshen:
		q.refreshDue()
	case t == Look:
		q.take(q.reaper.Due())
	}
}

// task is something that is to be done for each of many waiters.
type task struct {
	waiters []*Waiter
	f       func(*Waiter)
}

// sliceSize is how many waiters one event deals with: about a tenth of a millisecond.
const sliceSize = 128

// each calls f for those of the waiters that still wait: for some at once, for the others by Continue.
func (s *Set) each(waiters []*Waiter, f func(*Waiter)) {
	if len(waiters) == 0 {
		return
	}
	s.backlog = append(s.backlog, task{waiters, f})
	if !s.going {
		s.work()
	}
}

// Continue goes on with what concerns many waiters.
func (s *Set) Continue() {
	s.going = false
	s.work()
}

func (s *Set) work() {
	s.going = true // what is added now is worked off in its turn
	left := sliceSize
	for len(s.backlog) > 0 && left > 0 {
		t := &s.backlog[0]
		n := min(left, len(t.waiters))
		slice, f := t.waiters[:n], t.f
		if t.waiters = t.waiters[n:]; len(t.waiters) == 0 {
			if s.backlog = s.backlog[1:]; len(s.backlog) == 0 {
				s.backlog = nil
			}
		}
		left -= n
		for _, w := range slice {
			if w.queue != nil {
				f(w)
			}
		}
	}
	if s.going = len(s.backlog) > 0; s.going {
		s.emit(Effect{Op: GoOn})
	}
}
