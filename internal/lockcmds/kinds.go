package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file has the kinds of locks: how the waiters of each take turns, the scripts by which they ask, and the meaning
// of an answer. A new kind is a new value. The code of this file does no I/O and keeps no state.
//
//	kindOf(verb) ──► lockKind ──Ask, Question──► a script with the decoder of its answer ──► answerOf ──► table.Answer

// lockKind is one kind of lock. It is immutable.
type lockKind struct {
	Waits *table.Kind
	// ask is an attempt of one waiter.
	ask func(a attempt) question
	// lead is an attempt of the first of the waiters that share a place in the queue, made for all of them; nil: each
	// has its own place.
	lead func(a attempt, stays, enqueue bool) question
}

// attempt is an acquire that asks for its lock.
type attempt struct {
	script.Acquire
	Waits    bool          // it waits if the lock is not free
	FairWait time.Duration // the unit of deadlines in the queue in Redis
	Crowd    string        // the name of the place that the plain waiters share
}

// question is a script that asks for a lock.
type question struct {
	script.Call
	Decode func(resp.Value) (script.Acquired, error)
}

// The kinds. Fair is first come, first served.
var (
	plainKind = &lockKind{Waits: table.Plain, ask: askPlain, lead: leadPlain}
	fairKind  = &lockKind{Waits: table.Fair, ask: askFair}
)

// kindOf is the kind of lock that a verb asks for.
func kindOf(v grammar.Verb) *lockKind {
	if v == grammar.FairLock {
		return fairKind
	}
	return plainKind
}

// Ask is an attempt of an acquire for itself.
func (k *lockKind) Ask(a attempt) question { return k.ask(a) }

// Question is the next attempt of a waiter: for itself, or for all that share its place.
func (k *lockKind) Question(a attempt, w *table.Waiter) question {
	if first, stays, enqueue := w.First(); first && k.lead != nil {
		return k.lead(a, stays, enqueue)
	}
	return k.ask(a)
}

func askPlain(a attempt) question { return question{a.Acquire.Call(), script.DecodeAcquired} }

func leadPlain(a attempt, stays, enqueue bool) question {
	return question{
		script.Crowd{Acquire: a.Acquire, Wait: a.FairWait, Crowd: a.Crowd, Stays: stays, Enqueue: enqueue}.Call(),
		script.DecodeCrowd,
	}
}

// askFair takes or keeps the waiter's place in the queue, unless it does not wait.
func askFair(a attempt) question {
	return question{script.Fair{Acquire: a.Acquire, Wait: a.FairWait, Enqueue: a.Waits}.Call(), script.DecodeAcquired}
}

// answerOf is the meaning of an attempt's outcome to the wait queue. lease is that of a grant.
func answerOf(a script.Acquired, lease time.Duration, err error) table.Answer {
	if err != nil {
		return callFailure(err)
	}
	answer := table.Answer{TTL: a.PTTL, Placed: a.Placed, Place: table.Place(a.Place)}
	if a.Granted {
		answer.Status, answer.TTL = table.Held, lease
	}
	return answer
}

func callFailure(err error) table.Answer {
	switch _, refused := asRefusal(err); {
	case isPostponed(err):
		return table.Answer{Status: table.Failed}
	case refused:
		return table.Answer{Status: table.Refused, Err: err}
	case errors.Is(err, contract.ErrInDoubt):
		return table.Answer{Status: table.InDoubt}
	default:
		return table.Answer{Status: table.Failed}
	}
}
