package lockcmds

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// doubtLimit is how long a call whose answer was lost is sent again before the client is told that the outcome is in doubt.
const doubtLimit = 5 * time.Second

// request is one call of a session. If its answer is lost with the connection, a copy is sent on the engine's own connection until
// Redis answers: a script that runs twice leaves what it leaves when it runs once.
type request struct {
	s         Session
	call      script.Call
	pipelined bool         // as in Call
	again     *script.Call // the copy; nil: the call cannot be repeated
	doubted   func()       // the answer is lost and the copy is about to be sent; the session is locked. nil: not of interest
	// done is called once. It requires the session lock, or that the session has ended. It returns the reply; nil: Session.Reply
	// follows, or the call was handed to repeat.
	done func(o outcome) []byte

	sentAt time.Time          // before the first copy was sent
	late   func(reply []byte) // of a pipelined call whose slot waits for the reply
}

// outcome is the end of a request.
type outcome struct {
	reply    resp.Value
	err      error     // ErrUnsent, or ErrInDoubt: Redis could not be asked
	sentAt   time.Time // before the copy was sent that Redis has answered
	repeated bool      // an earlier copy may have been executed, or may still be
}

// send puts a request on the session's connection. Requires the session lock.
func (e *Engine) send(r *request) {
	r.sentAt = e.clock.Now()
	e.script(r.s, Call{
		Call: r.call, Pipelined: r.pipelined,
		Late: func(reply func([]byte)) { r.late = reply },
		Done: func(v resp.Value, err error) []byte {
			if !errors.Is(err, ErrInDoubt) || r.again == nil {
				return r.done(outcome{reply: v, err: err, sentAt: r.sentAt})
			}
			if r.doubted != nil {
				r.doubted()
			}
			e.repeat(r)
			return nil
		},
	})
}

// repeat sends the copy of a request until Redis answers it, for doubtLimit at most.
func (e *Engine) repeat(r *request) {
	until := e.clock.Now().Add(doubtLimit)
	pause := retryFirst
	e.tending.Add(1)
	var attempt func()
	attempt = func() {
		sentAt := e.clock.Now()
		ctx, cancel := context.WithDeadline(e.life, later(until, sentAt.Add(pause)))
		v, err := e.own.run(ctx, *r.again)
		cancel()
		if !resolves(v, err) {
			if !isFinal(refusalOf(v)) && e.life.Err() == nil && e.clock.Now().Add(pause).Before(until) {
				e.jobs.After(pause, jobs.Attempt, attempt)
				pause = min(2*pause, retryLast)
				return
			}
			err = ErrInDoubt
		}
		defer e.tending.Add(-1)
		o := outcome{reply: v, err: err, sentAt: sentAt, repeated: true}
		alive := e.do(r.s, func() {
			reply := r.done(o)
			switch {
			case reply == nil:
			case r.late != nil:
				r.late(reply)
			default:
				r.s.Reply(reply)
			}
		})
		if !alive {
			r.done(o)
		}
	}
	e.jobs.Submit(jobs.Attempt, attempt)
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
	return err == nil && (!v.IsError() || isOverwritten(refusalOf(v)))
}

// refusalOf is the error reply in v, or nil.
func refusalOf(v resp.Value) error {
	if v.IsError() {
		return script.Error(v.Str)
	}
	return nil
}
