package calls

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// DoubtLimit is how long a call whose answer was lost is sent again before the client is told that the outcome is in doubt.
const DoubtLimit = 5 * time.Second

// Request is one call of a session. If its answer is lost with the connection, a copy is sent on the engine's own connection until
// Redis answers: a script that runs twice leaves what it leaves when it runs once.
type Request struct {
	Session   contract.Session
	Call      script.Call
	Pipelined bool        // as in contract.Call
	Again     script.Call // the copy; without a script: the call cannot be repeated
	Once      bool        // the copy is sent once, because a later one could find another grant
	Doubted   func()      // the answer is lost and the copy is about to be sent; the session is locked. nil: not of interest
	// Done is called once. It requires the session lock, or that the session has ended. It returns the reply; nil: Session.Reply
	// follows, or the request was handed to Repeat.
	Done func(o Outcome) []byte

	SentAt time.Time          // set by Send: before the first copy was sent
	late   func(reply []byte) // of a pipelined call whose slot waits for the reply
}

// Outcome is the end of a request.
type Outcome struct {
	Reply    resp.Value
	Err      error     // ErrUnsent, or ErrInDoubt: Redis could not be asked
	SentAt   time.Time // before the copy was sent that Redis has answered
	Repeated bool      // an earlier copy may have been executed, or may still be
}

// Send puts a request on the session's connection. Requires the session lock.
func (c *Calls) Send(r *Request) {
	r.SentAt = c.Clock.Now()
	c.tending.Add(1) // until the outcome has been dealt with, though the session may have ended
	c.sent.Begin()
	call := contract.Call{Call: r.Call, Pipelined: r.Pipelined, Done: func(v resp.Value, err error) []byte {
		defer c.Guard.Stop()
		defer c.sent.End()
		defer c.tending.Add(-1)
		if !errors.Is(err, contract.ErrInDoubt) || r.Again.Script == nil {
			return r.Done(Outcome{Reply: v, Err: err, SentAt: r.SentAt})
		}
		if r.Doubted != nil {
			r.Doubted()
		}
		c.Repeat(r)
		return nil
	}}
	if r.Pipelined {
		call.Late = func(reply func([]byte)) { r.late = reply }
	}
	r.Session.Script(call)
}

// Repeat sends the copy of a request until Redis answers it, for DoubtLimit at most.
func (c *Calls) Repeat(r *Request) {
	until := c.Clock.Now().Add(DoubtLimit)
	pause := retryFirst
	c.tending.Add(1)
	var attempt func()
	attempt = func() {
		sentAt := c.Clock.Now()
		ctx, cancel := context.WithDeadline(c.Life, later(until, sentAt.Add(pause)))
		v, err := c.Own.run(ctx, r.Again)
		cancel()
		if !resolves(v, err) {
			if !r.Once && !isFinal(refusalOf(v)) && c.Life.Err() == nil && c.Clock.Now().Add(pause).Before(until) {
				c.Jobs.After(pause, jobs.Attempt, attempt)
				pause = min(2*pause, retryLast)
				return
			}
			err = contract.ErrInDoubt
		}
		defer c.tending.Add(-1)
		o := Outcome{Reply: v, Err: err, SentAt: sentAt, Repeated: true}
		alive := c.Guard.Do(r.Session, func() {
			reply := r.Done(o)
			switch {
			case reply == nil:
			case r.late != nil:
				r.late(reply)
			default:
				r.Session.Reply(reply)
			}
		})
		if !alive {
			r.Done(o)
		}
	}
	c.Jobs.Submit(jobs.Attempt, attempt)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resolves reports whether the answer to a copy says what has become of the call. A refusal does not, because it speaks of the copy
// alone; but a key that holds no lock has none.
func resolves(v resp.Value, err error) bool {
	return err == nil && (!v.IsError() || IsOverwritten(refusalOf(v)))
}

// refusalOf is the error reply in v, or nil.
func refusalOf(v resp.Value) error {
	if v.IsError() {
		return script.Error(v.Str)
	}
	return nil
}
