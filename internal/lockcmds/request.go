package lockcmds

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// doubtLimit is how long a call whose answer was lost is sent again before the client is told that the outcome is in
// doubt, if there are no failovers. calls.DoubtLimit is the limit where there may be.
const doubtLimit = 5 * time.Second

// DoubtLimit is how long a call whose answer was lost is sent again: a failover is outlived, but no more than a lease.
func (c *calls) DoubtLimit() time.Duration {
	if c.Failover == nil {
		return doubtLimit
	}
	return max(doubtLimit, min(c.Failover()+afterFailover, c.Lease))
}

// afterFailover is the time that is left for the answer when a failover is over.
const afterFailover = 2 * time.Second

// callRequest is one call of a session. If its answer is lost with the connection, a copy is sent on the engine's own
// connection until Redis answers: a script that runs twice leaves what it leaves when it runs once.
type callRequest struct {
	Session contract.Session
	For     lockCommand
	SentAt  time.Time // set by Send: before the first copy was sent
	Once    bool      // the copy is sent once, because a later one could find another grant

	calls *calls
}

// lockCommand is a command that sends requests: what calls ask and tell it.
type lockCommand interface {
	// Again is the copy, if the call can be repeated. Requires the session lock, or that the session has ended.
	Again() (copy script.Call, ok bool)
	// Postponed is for a call that Redis cannot carry out now, because the hash slot is being moved. Nothing has
	// happened. It returns the call to send until Redis can, and for how long. If an answer is lost meanwhile, it is
	// sent for DoubtLimit at least from then on. 0: the refusal is the answer. Requires the session lock, or that the
	// session has ended.
	Postponed() (call script.Call, limit time.Duration)
	// Doubted says that the answer to a call is lost, which was sent at that moment. It is called once at most, before
	// a copy of that call is sent. It is not called if the call cannot be repeated: then Answered says it. Requires the
	// session lock, or that the session has ended.
	Doubted(sentAt time.Time)
	// Answered is called once. It requires the session lock, or that the session has ended. It returns the reply; nil:
	// Session.Reply follows, or the request was handed to Anew.
	Answered(o callOutcome) []byte
}

// plainCommand is a lock command to which a doubt means nothing.
type plainCommand struct {
	// Call makes the call again: nothing keeps its names meanwhile, each of which is longer than that of the lock. nil:
	// it cannot be repeated, and needs no hash slot.
	Call   func() script.Call
	Unsafe bool // a copy may do harm
	Reply  func(o callOutcome) []byte
}

// Again implements lockCommand.
func (p plainCommand) Again() (script.Call, bool) {
	if p.Call == nil || p.Unsafe {
		return script.Call{}, false
	}
	return p.Call(), true
}

// Postponed implements lockCommand.
func (p plainCommand) Postponed() (script.Call, time.Duration) {
	if p.Call == nil {
		return script.Call{}, 0
	}
	return p.Call(), doubtLimit
}

// Doubted implements lockCommand.
func (plainCommand) Doubted(time.Time) {}

// Answered implements lockCommand.
func (p plainCommand) Answered(o callOutcome) []byte { return p.Reply(o) }

// callOutcome is the end of a request.
type callOutcome struct {
	Reply    resp.Value
	Err      error     // ErrUnsent, or ErrInDoubt: Redis could not be asked
	SentAt   time.Time // before the copy was sent that Redis has answered
	Repeated bool      // an earlier copy may have been executed, or may still be
}

// Send puts a call on the session's connection. The request is the call's own until its end. Requires the session lock.
func (c *calls) Send(call script.Call, r *callRequest) { c.SendAt(c.Clock.Now(), call, r) }

// SendAt is Send for a caller that has just read the clock.
func (c *calls) SendAt(now time.Time, call script.Call, r *callRequest) {
	r.calls, r.SentAt = c, now
	c.unfinished.Add(1) // until the outcome has been dealt with, though the session may have ended
	c.sent.Begin()
	r.Session.Script(contract.Call{Call: call.On(c.Client.Servers()), For: r})
}

// Done implements contract.Asker.
func (r *callRequest) Done(v resp.Value, err error) []byte {
	c := r.calls
	defer c.FailStop.Guard()
	defer c.sent.End()
	defer c.unfinished.Add(-1)
	if errors.Is(err, contract.ErrInDoubt) {
		if again, ok := r.For.Again(); ok {
			r.For.Doubted(r.SentAt)
			c.Repeat(r, again)
			return nil
		}
	}
	if err == nil && isPostponed(refusalOf(v)) {
		if call, limit := r.For.Postponed(); limit > 0 {
			c.repeat(r, repetition{call: call, limit: limit, certain: true})
			return nil
		}
	}
	return r.For.Answered(callOutcome{Reply: v, Err: err, SentAt: r.SentAt})
}

// Repeat sends the copy of a request until Redis answers it, for as long as DoubtLimit says.
func (c *calls) Repeat(r *callRequest, again script.Call) {
	c.repeat(r, repetition{call: again, limit: c.DoubtLimit(), repeated: true})
}

// Anew sends another call for a request whose first one was answered, until Redis answers, for as long as DoubtLimit
// says.
func (c *calls) Anew(r *callRequest, call script.Call) {
	c.repeat(r, repetition{call: call, limit: c.DoubtLimit()})
}

// repetition is a call that is sent on the engine's own connection until Redis answers.
type repetition struct {
	call     script.Call
	limit    time.Duration
	repeated bool // an earlier copy may have been executed
	// Until a copy is lost it is certain that nothing has happened, so the latest refusal is the answer at the end.
	certain bool
}

// repeat sends a call on the engine's own connection.
func (c *calls) repeat(r *callRequest, again repetition) {
	until := c.Clock.Now().Add(again.limit)
	c.try(jobs.Attempt, func(pause time.Duration) (done bool) {
		sentAt := c.Clock.Now()
		ctx, cancel := context.WithDeadline(c.Life, later(until, sentAt.Add(pause)))
		v, err := c.Client.run(ctx, again.call)
		cancel()
		if !resolves(v, err) {
			if errors.Is(err, contract.ErrInDoubt) && !again.repeated {
				again.repeated = true
				if again.certain { // a doubt has its own time, although that for the hash slot is over
					until = later(until, c.Clock.Now().Add(c.DoubtLimit()))
				}
				if !c.FailStop.Do(r.Session, func() { r.For.Doubted(sentAt) }) {
					r.For.Doubted(sentAt)
				}
			}
			if !r.Once && !isFinal(refusalOf(v)) && c.Life.Err() == nil && c.Clock.Now().Add(pause).Before(until) {
				return false
			}
			if !again.certain || again.repeated {
				err = contract.ErrInDoubt
			}
		}
		o := callOutcome{Reply: v, Err: err, SentAt: sentAt, Repeated: again.repeated}
		alive := c.FailStop.Do(r.Session, func() {
			if reply := r.For.Answered(o); reply != nil {
				r.Session.Reply(reply)
			}
		})
		if !alive {
			r.For.Answered(o)
		}
		return true
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resolves reports whether the answer to a copy says what has become of the call. A refusal does not, because it speaks
// of the copy alone; but a key that holds no lock has none.
func resolves(v resp.Value, err error) bool {
	return err == nil && (!v.IsError() || isOverwritten(refusalOf(v)))
}

// refusalOf is the error reply in v, or nil.
func refusalOf(v resp.Value) error {
	if v.IsError() {
		return script.ErrorOf(v)
	}
	return nil
}
