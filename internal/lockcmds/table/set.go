package table

import (
	"time"
)

// Config configures a Set. All fields are required.
type Config struct {
	Lease     time.Duration // a lock is looked at once in that time in any case
	Wait      time.Duration // what deadlines of places in Redis are counted in
	StaleHead time.Duration // after this time the head of a free lock's queue without a subscriber is stale
}

// Set is the queues of all locks of one engine.
type Set struct {
	config   Config
	queues   map[string]*Queue
	channels *subscriptions[listeners]
	leaving  *departures[Effect]
	waiters  line[*Waiter] // of all queues, in the order in which they joined
	list     []*Queue      // the queues in no order, so that they can be walked in slices
	backlog  *backlog[*Waiter]
	effects  []Effect

	lingering line[*Queue] // at most lingerLimit
	stopped   bool         // RemoveAll was called: no queue lingers
}

// NewSet returns a set without queues.
func NewSet(c Config) *Set {
	s := &Set{config: c, queues: make(map[string]*Queue)}
	s.channels = newSubscriptions[listeners](subscriptionHooks{
		Subscribe:   func(channel string) { s.emit(Effect{Op: Subscribe, Channel: channel}) },
		Unsubscribe: func(channel string) { s.emit(Effect{Op: Unsubscribe, Channel: channel}) },
		Wait:        func(d time.Duration) { s.emit(Effect{Op: Tidy, Delay: d}) },
	})
	s.backlog = newBacklog(backlogHooks[*Waiter]{
		GoOn:  func() { s.emit(Effect{Op: GoOn}) },
		Waits: (*Waiter).Waits,
	})
	s.leaving = newDepartures(departureHooks[Effect]{
		Remove:   func(key string) { s.emit(Effect{Op: RemovePlaces, Key: key}) },
		Wait:     func(key string, d time.Duration) { s.emit(Effect{Op: Patience, Key: key, Delay: d}) },
		Send:     s.emit,
		Occupied: s.occupied,
	})
	return s
}

// Find returns the queue of a lock; nil: there is none, and no waiter is here.
func (s *Set) Find(key string) *Queue { return s.queues[key] }

// Len is how many queues there are.
func (s *Set) Len() int { return len(s.queues) }

// Waiters is how many waiters there are in all queues.
func (s *Set) Waiters() int { return s.waiters.Len() }

// Oldest is the waiter that has joined first; nil: none waits.
func Oldest(s *Set) *Waiter { return s.waiters.First() }

// Queues is the queues in no order, for callers that walk them backwards in slices. If a queue ends, the last one takes
// its place. The caller does not change or keep it.
func Queues(s *Set) []*Queue { return s.list }

// Denied is the error with which Redis refuses the subscriptions of the lock; nil: it does not.
func (s *Set) Denied(key string) error {
	if q := s.queues[key]; q != nil {
		return q.denied
	}
	return nil
}

// MayJoin reports whether a waiter may join the waiters that share the place without asking Redis first: those go
// before it, and the same messages wake it when its turn comes.
func (s *Set) MayJoin(key string, k *Kind) bool {
	q := s.queues[key]
	return !k.OwnPlace && q != nil && q.shared.Len() > 0 && q.base.Ready() && q.pause == 0
}

// Op says what an Effect asks for.
type Op uint8

// The effects. In parentheses: the fields that are set, and the event that follows.
const (
	Attempt      Op = iota // ask for the lock for a waiter (Waiter, Queue, Urgent; Answered)
	Finish                 // the waiter has left: tell its client (Waiter, Outcome, Err, Doubt)
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
	expiry     Timer = iota // the end of the holder's lease, or of the pause after an error
	freshen                 // the deadlines of places in Redis
	lookDue                 // the reaper's
	lingerOver              // the end of lingering
)

// TimersCount is how many timers a queue has.
const TimersCount = int(lingerOver) + 1

func (s *Set) emit(e Effect) { s.effects = append(s.effects, e) }

// Effects returns what is to be done because of the events since the last call. The slice belongs to the caller until
// it calls Done.
func (s *Set) Effects() []Effect {
	if len(s.effects) == 0 {
		return nil // the slice stays for the next event
	}
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

// TidyDue says that the timer of the effect Tidy has run out.
func (s *Set) TidyDue() { s.channels.Due() }

// Continue goes on with the work for many waiters, as the effect GoOn asks.
func (s *Set) Continue() { s.backlog.Continue() }
