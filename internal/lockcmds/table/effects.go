package table

import "time"

// Op says what an Effect asks for.
type Op uint8

// The effects about leases and holds. In parentheses: the fields that are set besides Hold.
const (
	Track    Op = iota // watch the lease, which counts from SentAt (SentAt)
	Pause              // no renewal begins until Resume or Continue
	Resume             // ends a Pause: the lease was set anew, by a command that was sent at SentAt (SentAt)
	Continue           // ends a Pause: the lease goes on as it was
	Shorten            // a command may have set the lease to the present, shorter TTL; it ends no Pause (SentAt)
	Forget             // the hold has ended: its lease is watched no more (End)
	Suspect            // a timer: losses wait that may be none (Delay alone; SuspectsDue, when messages of before are in)
	Tell               // tell the sessions of a loss (Loss alone)
)

// The effects about waiters. In parentheses: the fields that are set, and the event that follows.
const (
	Attempt      Op = iota + Tell + 1 // ask for the lock for a waiter (Waiter, Queue; Answered)
	Finish                            // the waiter has left: tell its client (Waiter, Outcome, Err, Doubt)
	Subscribe                         // listen (Channel; Subscribed at each confirmation, Published, SubscriptionRefused)
	Unsubscribe                       // do not listen to it any more (Channel)
	SetTimer                          // in place of that queue's timer of the kind (Queue, Timer, Delay, Spread; TimerDue)
	StopTimers                        // all of the queue (Queue)
	Tidy                              // a timer (Delay; TidyDue)
	Patience                          // a timer (Key, Delay; PatienceDue)
	RemovePlaces                      // take places out of the queue in Redis (Key; Departing, then Departed)
	Refresh                           // put off the deadlines of places in Redis (Queue, Places; Refreshed)
	ListPlaces                        // ask for the queue in Redis (Queue; PlacesListed)
	AskHead                           // ask for its first place (Queue, Look; HeadTold)
	RemoveHead                        // remove its first place if its waiter is stale (Queue, Place, Force; HeadRemoved)
	GoOn                              // call Table.GoOn, when others have had their turn
)

// Effect is something that the caller is to do after an event, in this order.
type Effect struct {
	Op     Op
	Hold   *Hold
	SentAt time.Time // when the command was sent that has set the lease
	Loss   *Loss
	End    End

	Waiter *Waiter
	Queue  *Queue

	Key, Channel, Place string
	Places              []string

	Outcome Outcome
	Err     error // of the outcome Error
	Doubt   bool  // whatever the outcome, it is unknown whether the waiter's owner has the lock

	Timer         Timer
	Delay, Spread time.Duration // the delay, and a random length of time up to Spread more

	Look  bool // the question is the reaper's
	Force bool // the waiter at the head was woken often enough
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

// End says how a hold has ended. The zero value: by its releases.
type End struct {
	Client Client // the client of the hold, as in Hold.Client
	HungUp bool   // the last client that held the lock has gone; the lease may go on in Redis
}

// Loss is the report of one lost hold.
type Loss struct {
	Key    Key
	Fence  int64
	Reason string
	Since  time.Time  // when the command was sent that acquired the lock
	Client Client     // the first of the clients that held it for the owner
	To     []*Session // that had holds
}

// effects are the effects that were not taken yet. All parts of a Table have the same ones.
type effects struct{ list []Effect }

func (x *effects) emit(e Effect) { x.list = append(x.list, e) }

// Effects returns what is to be done because of the events since the last call. The slice belongs to the caller until
// it calls Done.
func (x *effects) Effects() []Effect {
	if len(x.list) == 0 {
		return nil // the slice stays for the next event
	}
	list := x.list
	x.list = nil
	return list
}

// keptEffects is how long a slice of effects may be that is used again: a burst must not keep its memory.
const keptEffects = 256

// Done takes the slice of Effects for the next time. It keeps no hold alive.
func (x *effects) Done(list []Effect) {
	if x.list == nil && cap(list) <= keptEffects {
		clear(list)
		x.list = list[:0]
	}
}
