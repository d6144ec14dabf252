package waiters

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// kind is one kind of lock: how its waiters take turns, and the scripts by which they ask. A new kind is a new value.
type kind struct {
	waits *queue.Kind
	// ask is an attempt of one waiter.
	ask func(w *waiter) question
	// lead is an attempt of the first of the waiters that share a place in the queue, made for all of them; nil: each has its own place.
	lead func(w *waiter) question
}

// question is a script that asks for a lock.
type question struct {
	script.Call
	decode func(resp.Value) (script.Acquired, error)
}

var (
	plain = &kind{waits: queue.Plain, ask: askPlain, lead: leadPlain}
	fair  = &kind{waits: queue.Fair, ask: askFair}
)

// kindOf is the kind of lock that a verb asks for.
func kindOf(v grammar.Verb) *kind {
	if v == grammar.FairLock {
		return fair
	}
	return plain
}

func (w *waiter) acquire() script.Acquire {
	return script.Acquire{Key: w.lock(), Part: w.claim.Part(), Lease: w.lease}
}

func askPlain(w *waiter) question {
	return question{w.acquire().Call(), script.DecodeAcquired}
}

func leadPlain(w *waiter) question {
	_, stays, enqueue := w.First()
	return question{
		script.Crowd{Acquire: w.acquire(), Wait: w.x.FairWait, Crowd: w.x.place, Stays: stays, Enqueue: enqueue}.Call(),
		script.DecodeCrowd,
	}
}

// askFair takes or keeps the waiter's place in the queue, unless it does not wait.
func askFair(w *waiter) question {
	return question{
		script.Fair{Acquire: w.acquire(), Wait: w.x.FairWait, Enqueue: w.wait != 0}.Call(),
		script.DecodeAcquired,
	}
}

// question is the script of the waiter's next attempt.
func (w *waiter) question() question {
	if first, _, _ := w.First(); first && w.kind().lead != nil {
		return w.kind().lead(w)
	}
	return w.kind().ask(w)
}
