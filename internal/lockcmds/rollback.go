package lockcmds

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// rollback ends a session's part in a grant that no client relies on: the client was not told of it, was told that it
// is lost, or has gone. No command waits for it: a later acquire of the session has another name.
type rollback struct {
	script.Drop
	Kind lockKind // of the lock
	// Its renewal on its way is waited for, because it could make the lease longer again; nil: none.
	After *watchdog.Lease
	// Until is the end of the lease that its client was told; zero: Drop.Keep is the rest of it, from the attempt on.
	Until time.Time
	Limit time.Duration // of trying: by then the lease has run out
	Gone  func()        // the owner does not hold the lock by that grant any more; requires no locks. nil: not of interest
	// Late says that the answer to a call is lost, which is to be undone: it may still lie in a socket. So the rollback is
	// sent once more, lateCopy after its answer.
	Late bool
	// Tried is called behind the first attempt, which has succeeded or not; requires no locks. nil: not of interest.
	Tried func(ok bool)
	Done  func() // is called at the end, each time; requires no locks. nil: not of interest
}

// lateCopy is how much later a rollback is sent once more.
const lateCopy = time.Second

// RollBack sends a rollback until Redis answers. It does not block.
func (c *calls) RollBack(r rollback) {
	if lease := r.After; lease != nil {
		r.After = nil
		if lease.Pause(func() { c.RollBack(r) }) {
			return
		}
	}
	c.Retry(cleanup{
		What: "roll a hold back", Key: r.Key, Limit: r.Limit,
		Task: func(ctx context.Context) error {
			if !r.Until.IsZero() {
				r.Keep = max(time.Millisecond, r.Until.Sub(c.Clock.Now())) // of each attempt: the lease runs meanwhile
			}
			v, err := c.Client.run(ctx, r.Kind.Drop(r.Drop))
			held, err := decoded(v, err, script.DecodeDropped)
			if err == nil && !held && r.Gone != nil {
				r.Gone()
			}
			if r.Tried != nil {
				r.Tried(err == nil)
				r.Tried = nil
			}
			return err
		},
		Done: func(bool) {
			if r.Done != nil {
				r.Done()
			}
			if r.Late {
				r.Late = false
				c.After(lateCopy, jobs.CleanUp, func() { c.RollBack(r) })
			}
		},
	})
}
