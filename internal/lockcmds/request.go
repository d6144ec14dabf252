package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// callRequest is one call of a session. If its answer is lost with the connection, the session's connection closes, and
// the command has the engine settle what it may have done.
type callRequest struct {
	Session contract.Session
	For     lockCommand
	SentAt  time.Time // set by Send

	calls *calls
}

// lockCommand is a command that sends requests: what calls ask and tell it.
type lockCommand interface {
	// Postponed is for a call that Redis cannot carry out now, because the hash slot is being moved. Nothing has
	// happened. It returns the call to send until Redis can, and for how long. 0: the refusal is the answer. Requires
	// the session lock, or that the session has ended.
	Postponed() (call script.Call, limit time.Duration)
	// Answered is called once. It requires the session lock, or that the session has ended. It returns what
	// contract.Session.Reply takes; nil: that call follows.
	Answered(o callOutcome) []byte
}

// plainCommand is a lock command that leaves nothing to settle.
type plainCommand struct {
	// Call makes the call again: nothing keeps its names meanwhile, each of which is longer than that of the lock. nil:
	// it needs no hash slot.
	Call  func() script.Call
	Reply func(o callOutcome) []byte
}

// Postponed implements lockCommand.
func (p plainCommand) Postponed() (script.Call, time.Duration) {
	if p.Call == nil {
		return script.Call{}, 0
	}
	return p.Call(), postponedLimit
}

// postponedLimit is how long a command waits for its hash slot, if it is about no lease.
const postponedLimit = 5 * time.Second

// Answered implements lockCommand.
func (p plainCommand) Answered(o callOutcome) []byte { return p.Reply(o) }

// callOutcome is the end of a request.
type callOutcome struct {
	Reply  resp.Value
	Err    error     // ErrUnsent, or ErrInDoubt: the answer is lost
	SentAt time.Time // before the call was sent
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
	if err == nil && isPostponed(refusalOf(v)) {
		if call, limit := r.For.Postponed(); limit > 0 {
			c.Resend(r, call, limit)
			return nil
		}
	}
	return r.For.Answered(callOutcome{Reply: v, Err: err, SentAt: r.SentAt})
}

// Resend sends a call of a request on the engine's own connection, because Redis has refused it, or it is another one,
// until Redis carries it out or the limit is over. Then the latest refusal is the answer.
func (c *calls) Resend(r *callRequest, call script.Call, limit time.Duration) {
	until := c.Clock.Now().Add(limit)
	c.try(jobs.Urgent, func(pause time.Duration) (done bool) {
		sentAt := c.Clock.Now()
		v, err := c.Client.run(c.Life, call)
		refusal := refusalOf(v)
		passes := errors.Is(err, contract.ErrUnsent) || refusal != nil && !isFinal(refusal)
		if passes && c.Life.Err() == nil && c.Clock.Now().Add(pause).Before(until) {
			return false
		}
		o := callOutcome{Reply: v, Err: err, SentAt: sentAt}
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

// refusalOf is the error reply in v, or nil.
func refusalOf(v resp.Value) error {
	if v.IsError() {
		return script.ErrorOf(v)
	}
	return nil
}
