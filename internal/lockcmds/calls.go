package lockcmds

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// The calls carry the scripts of a lock engine to Redis: this file, request.go (for sessions), rollback.go, and
// client.go (the engine's own connections). They know the connection of each script, when it is sent again, and when to
// give up. They know no holders.
//
//	a session's command ──► Send ──► its own lane or pin ──answer lost──► the session's connection closes
//	                          └──slot moves──► Resend ──► the engine's own connection
//	leases              ──► Client.Renew ──► the engine's own connection
//	rollbacks           ──► RollBack ──► Retry ──► the same, until Redis answers
//	other work          ──► runFor   ──► the engine's own connection
//
// A session's call is sent once, unless Redis has refused it. Nothing here blocks but runFor and Renew, which are for
// jobs.

// calls is the calls of one engine. Its methods may be called from any goroutine.
type calls struct {
	// Immutable. All are required.
	Client   scriptRunner
	Jobs     jobs.Runner
	Clock    jobs.Clock
	Life     context.Context // of the engine's own work
	Log      *zap.Logger
	FailStop FailStop

	sent       jobs.Count   // on sessions' connections, and their outcome has not been dealt with
	unfinished atomic.Int64 // those, clean-ups and background tasks that have not come to an end
}

// Busy reports whether a call, a clean-up or a background task has not come to an end.
func (c *calls) Busy() bool { return c.unfinished.Load() != 0 }

// WaitSent returns when the outcome of every call on a session's connection has been dealt with, or ctx ends.
func (c *calls) WaitSent(ctx context.Context) { c.sent.Wait(ctx) }

// Background runs a task as a job, and keeps the engine busy until its end.
func (c *calls) Background(class jobs.Class, task func()) {
	c.unfinished.Add(1)
	c.Jobs.Submit(class, func() {
		defer c.unfinished.Add(-1)
		task()
	})
}

// After runs a task as a job when d has passed, and keeps the engine busy until its end.
func (c *calls) After(d time.Duration, class jobs.Class, task func()) {
	c.unfinished.Add(1)
	c.Jobs.After(d, class, func() {
		defer c.unfinished.Add(-1)
		task()
	})
}

// cleanup is something that has to be done in Redis though no client asks for it.
type cleanup struct {
	What, Key string
	Task      func(context.Context) error
	Limit     time.Duration // of trying: by then the lease it is about has run out
	Done      func(ok bool) // the end: the task has succeeded; requires no locks. nil: no caller waits for it
}

// Retry runs a clean-up as jobs until it succeeds, Redis refuses it, or its limit has passed.
func (c *calls) Retry(u cleanup) {
	until := c.Clock.Now().Add(u.Limit)
	c.try(jobs.CleanUp, func(time.Duration) (done bool) {
		err := u.Task(c.Life)
		if err != nil && !isFinal(err) && c.Life.Err() == nil && !c.Clock.Now().After(until) {
			return false
		}
		if err != nil {
			c.Log.Warn("clean-up failed", zap.String("task", u.What), logging.Text("key", u.Key), zap.Error(err))
		}
		if u.Done != nil {
			u.Done(err == nil)
		}
		return true
	})
}

// try runs attempts as jobs until one is the last, and keeps the engine busy until then. Each is told of the pause that
// follows if it is not the last.
func (c *calls) try(class jobs.Class, attempt func(pause time.Duration) (done bool)) {
	pause := retryFirst
	c.unfinished.Add(1)
	var next func()
	next = func() {
		if attempt(pause) {
			c.unfinished.Add(-1)
			return
		}
		c.Jobs.After(pause, class, next)
		pause = min(2*pause, longestPause)
	}
	c.Jobs.Submit(class, next)
}

// Pauses between attempts while Redis does not answer.
const (
	retryFirst = 20 * time.Millisecond
	// longestPause is the pause that no other one exceeds.
	longestPause = time.Second
)
