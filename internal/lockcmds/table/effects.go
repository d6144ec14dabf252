package table

import (
	"slices"
	"time"
)

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

func (t *Table) emit(e Effect) { t.effects = append(t.effects, e) }

// Effects returns what is to be done because of the events since the last call. The slice belongs to the caller until
// it calls Done.
func (t *Table) Effects() []Effect {
	if len(t.effects) == 0 {
		return nil // the slice stays for the next event
	}
	effects := t.effects
	t.effects = nil
	return effects
}

// keptEffects is how long a slice of effects may be that is used again: a burst must not keep its memory.
const keptEffects = 256

// Done takes the slice of Effects for the next time. It keeps no hold alive.
func (t *Table) Done(effects []Effect) {
	if t.effects == nil && cap(effects) <= keptEffects {
		clear(effects)
		t.effects = effects[:0]
	}
}

func (t *Table) continueLease(h *Hold) { t.emit(Effect{Op: Continue, Hold: h}) }

// ReasonGone is the reason of a loss of which Redis's answer tells.
const ReasonGone = "gone"

// Lost ends a hold that is not ours any more. The session that learns it by its own reply is left out. certain: the
// releases that are on their way cannot have ended it.
func (t *Table) Lost(h *Hold, reason string, certain bool, except *Session) {
	h.lost, h.reason = true, reason
	loss := &Loss{Key: h.Key, Fence: h.Fence, Reason: reason, Since: h.Since, Client: h.Client()}
	for _, o := range h.parts {
		// A session without holds has lost none. If its release is on its way, the reply tells it.
		if o.Session != except && o.Holds > 0 {
			loss.To = append(loss.To, o.Session)
		}
	}
	t.Drop(h)
	if h.givenUp() && !certain { // the answers to the releases say whether they came in time
		h.untold = loss
		return
	}
	if reason == ReasonGone && !certain && except == nil {
		if !h.released {
			t.suspect(loss)
		}
		return
	}
	t.tell(loss)
}

// Gone ends a hold that Redis does not have any more, if it goes on here.
func (t *Table) Gone(h *Hold) {
	if h.known {
		t.Lost(h, ReasonGone, false, nil)
	}
}

// tell reports a loss.
func (t *Table) tell(loss *Loss) {
	t.note(loss)
	t.emit(Effect{Op: Tell, Loss: loss})
}

// note has a later command of the sessions, or by the fence, be answered with the loss.
func (t *Table) note(loss *Loss) {
	t.lost.add(loss)
	for _, s := range loss.To {
		s.Losses.Add(s.lossOf(loss.Key), loss.Fence)
	}
}

// A hold that Redis does not have any more may have been released through another proxy, whose message is on its way.
// So such a loss is told a moment later:
//
//	Lost ──Suspect──► SuspectsDue ──► Tell
//	   └──► ReleasedElsewhere: it is none

// lossDelay is that moment; at most twice as long, and until the messages are in that Redis has published by then. The
// script that releases a grant publishes the message before Redis can answer that it does not have the grant. So only
// the ways through two connections differ, and in a cluster the way between two servers.
const lossDelay = 40 * time.Millisecond

// suspects are losses that may be none. Some wait for the present delay to end, the others for the one after it.
type suspects struct {
	byGrant     map[lossName]*Loss
	next, later []*Loss
	timed       bool // SuspectsDue follows
}

func (t *Table) suspect(loss *Loss) {
	x := &t.suspects
	t.note(loss)
	if x.byGrant == nil {
		x.byGrant = make(map[lossName]*Loss)
	}
	x.byGrant[grantName(loss.Key.Lock, loss.Fence)] = loss
	if x.timed {
		x.later = append(x.later, loss)
		return
	}
	x.next, x.timed = append(x.next, loss), true
	t.emit(Effect{Op: Suspect, Delay: lossDelay})
}

// SuspectsDue tells of losses that no message has explained, of some at a time.
func (t *Table) SuspectsDue() {
	x := &t.suspects
	n := min(len(x.next), sliceSize)
	for _, loss := range x.next[:n] {
		if name := grantName(loss.Key.Lock, loss.Fence); x.byGrant[name] == loss {
			delete(x.byGrant, name)
			t.emit(Effect{Op: Tell, Loss: loss})
		}
	}
	switch x.next = x.next[n:]; {
	case len(x.next) > 0:
		t.emit(Effect{Op: Suspect})
	case len(x.later) > 0:
		x.next, x.later = x.later, nil
		t.emit(Effect{Op: Suspect, Delay: lossDelay})
	default:
		*x = suspects{} // a burst must not keep its memory
	}
}

// Suspected is the loss of a grant that is not told yet; nil: there is none.
func (t *Table) Suspected(lock string, fence int64) *Loss {
	if len(t.suspects.byGrant) == 0 {
		return nil
	}
	return t.suspects.byGrant[grantName(lock, fence)]
}

// ReleasedElsewhere says that the grant of a suspected loss was released.
func (t *Table) ReleasedElsewhere(loss *Loss) {
	n := grantName(loss.Key.Lock, loss.Fence)
	delete(t.suspects.byGrant, n)
	t.lost.remove(n)
	for _, s := range loss.To {
		if k := s.lossOf(loss.Key); !k.Kind.Reenters() || s.Losses.Fence(k) == loss.Fence {
			s.Losses.Forget(k)
		}
	}
}

// tellUntold reports a loss that was not told because releases were on their way, when one of them has been answered
// and the others cannot have ended the hold.
func (t *Table) tellUntold(r *Release, a HoldAnswer, reply Reply) {
	h := r.Hold
	if h == nil || h.untold == nil {
		return
	}
	switch a.Status {
	case Freed:
		h.untold = nil
		return
	case Held:
		h.Count = a.Holds
	case Busy, NotHolder, OtherGrant, Refused, Failed, InDoubt:
	}
	if reply == LostLease {
		h.untold.To = slices.DeleteFunc(h.untold.To, func(s *Session) bool { return s == r.By })
	}
	t.tellIfKept(h)
}

// tellIfKept reports a loss that was not told, if what is on its way cannot have ended the hold.
func (t *Table) tellIfKept(h *Hold) {
	if loss := h.untold; loss != nil && !h.givenUp() && len(loss.To) > 0 {
		h.untold = nil
		t.tell(loss)
	}
}
