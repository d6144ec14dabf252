package lockcmds

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file finds out whether replicas have a grant before its client is told of it.
//
//	Confirm ──► quick line of the server ──► round: prove for each grant, one WAIT ──► Done
//	                                         │ not enough replicas yet
//	                                         ▼
//	            patient line of the server ──► round: the same, with a longer WAIT ──► …
//
// WAIT counts the replicas that have the last write of its own connection, and stops that connection. A grant is
// written by another connection. So a round writes behind each grant, on the connection that waits: prove finds the
// grant by its fence and by how often it is held, and changes nothing. A replica that has this write has the
// grant. If the server is not the one that gave the grant, the script does not find it.
//
// All grants that wait at a server share a round, of whatever hash slots they are. After each round the servers of the
// others are looked up anew, because their slots may have moved. There is one round at a time in each line. A round
// waits for the smallest number first, and for the next larger one if enough replicas have answered. So a client that
// wants more replicas than there are delays the others by quickLimit at most: after that its grant is in the patient
// line.
//
// Goroutines: none of its own. A round is a job that waits for patientLimit at most.

// unconfirmedGrant is a grant whose client has not been told of it.
type unconfirmedGrant struct {
	Lock     string
	Proof    script.Call          // finds the grant
	Replicas int                  // that must have it, at least 1
	Until    time.Time            // when its client waits no longer
	Done     func(o confirmation) // called once by a job. Requires no locks
}

// confirmation is what became of an unconfirmedGrant.
type confirmation struct {
	Confirmed bool
	Have      int   // if not: how many replicas have it for certain
	Gone      bool  // if not: the server does not have it any more
	Refused   error // if not: why Redis refuses the question for good; nil: it does not
}

// confirmer has the grants of one engine confirmed. Its methods may be called from any goroutine.
type confirmer struct {
	jobs  jobs.Runner
	clock jobs.Clock
	life  context.Context // of rounds
	end   context.CancelFunc

	mu    sync.Mutex // guards the fields below and all lines
	lines map[lineName]*line
	count int // grants without an outcome
}

// lineName names a line.
type lineName struct {
	server  redislink.Server
	patient bool
}

// line is the grants that wait for the next round at a server. It exists while a round is on its way, or about to
// begin.
type line struct{ waiting []wanted }

// wanted is a grant that waits for a round.
type wanted struct {
	unconfirmedGrant
	node redislink.Node // that gave it
}

// newConfirmer returns a confirmer without grants. life is that of the engine's own work.
func newConfirmer(life context.Context, runner jobs.Runner, clock jobs.Clock) *confirmer {
	c := &confirmer{jobs: runner, clock: clock, lines: make(map[lineName]*line)}
	c.life, c.end = context.WithCancel(life)
	return c
}

// Close ends the rounds on their way. Grants without an outcome are not confirmed.
func (c *confirmer) Close() { c.end() }

// Busy reports whether a grant waits for its outcome.
func (c *confirmer) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count > 0
}

// Confirm asks for a grant that was given by a node. It does not block.
func (c *confirmer) Confirm(node redislink.Node, g unconfirmedGrant) {
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
	c.add(false, 0, wanted{g, node})
}

// add has grants wait for the next rounds of the servers where they are now. A round that is not on its way begins after
// a pause.
func (c *confirmer) add(patient bool, pause time.Duration, grants ...wanted) {
	at := make([]lineName, len(grants))
	for i, g := range grants {
		at[i] = lineName{g.node.Server(), patient}
	}
	var begin []lineName
	c.mu.Lock()
	for i, g := range grants {
		l := c.lines[at[i]]
		if l == nil {
			l = &line{}
			c.lines[at[i]] = l
			begin = append(begin, at[i])
		}
		l.waiting = append(l.waiting, g)
	}
	c.mu.Unlock()
	for _, name := range begin {
		c.begin(name, pause)
	}
}

func (c *confirmer) begin(at lineName, pause time.Duration) {
	if pause == 0 {
		c.jobs.Submit(jobs.Urgent, func() { c.round(at) })
	} else {
		c.jobs.After(pause, jobs.Urgent, func() { c.round(at) })
	}
}

// done tells the outcome of a grant.
func (c *confirmer) done(g unconfirmedGrant, o confirmation) {
	g.Done(o)
	c.mu.Lock()
	c.count--
	c.mu.Unlock()
}

const (
	// quickLimit is how long a round of the quick line waits.
	quickLimit = 50 * time.Millisecond
	// patientLimit is the same for the patient line. A replica that is farther behind confirms grants only while no new
	// ones come.
	patientLimit = 500 * time.Millisecond
	// answerSlack is how much later the answer to a WAIT may come.
	answerSlack = 200 * time.Millisecond
	// earlyPause is the pause after a round that did not wait for its time, because the server could not be asked.
	earlyPause = 50 * time.Millisecond
	// mostGrants is the most grants of a round: they are written in one go.
	mostGrants = 1000
)

// round asks for all grants of a line.
func (c *confirmer) round(at lineName) {
	c.mu.Lock()
	l := c.lines[at]
	grants := l.waiting[:min(len(l.waiting), mostGrants)]
	l.waiting = l.waiting[len(grants):]
	c.mu.Unlock()
	rest, early := c.ask(at, grants)
	now := c.clock.Now()
	var later []wanted
	for _, one := range rest {
		if one.Until.After(now) && c.life.Err() == nil {
			later = append(later, one.wanted)
		} else {
			c.done(one.unconfirmedGrant, confirmation{Have: one.have})
		}
	}
	pause := time.Duration(0)
	if early {
		pause = earlyPause
	}
	c.add(true, pause, later...)
	c.mu.Lock()
	more := len(l.waiting) > 0
	if !more {
		delete(c.lines, at)
	}
	c.mu.Unlock()
	if more {
		c.begin(at, pause)
	}
}

// confirm has replicas confirm a grant, which is not recorded until then and whose client is not told. The lease is not
// renewed meanwhile.
func (w *acquire) confirm(g grant) {
	w.e.mu.Lock()
	ended, deepens := w.s.ended, w.Deepens()
	w.unsynced = g
	w.e.mu.Unlock()
	if ended {
		w.drop(g, waitHungUp, nil)
		return
	}
	until := w.ConfirmUntil(w.e.opts.Clock.Now(), w.began, g.sentAt, deepens)
	part := w.Part()
	part.Fence, part.Holds = g.fence, g.count
	w.e.confirm.Confirm(w.e.client.Node(w.Lock), unconfirmedGrant{
		Lock: w.Lock, Proof: kindOf(w.Key).Prove(script.Prove{Key: w.Lock, Part: part}),
		Replicas: w.Sync, Until: until,
		Done: func(o confirmation) {
			w.e.mu.Lock()
			w.unsynced = grant{}
			w.e.mu.Unlock()
			if o.Confirmed {
				g.synced = true
				w.deliver(g)
			} else {
				w.dropUnsynced(g, o)
			}
		},
	})
}

// dropUnsynced drops a grant that too few replicas have, and answers. Requires no locks.
func (w *acquire) dropUnsynced(g grant, o confirmation) {
	if o.Gone {
		g.count = 0 // the holds that a named owner has may be those of others
	}
	switch {
	case w.e.hasEnded(w.s):
		w.drop(g, waitHungUp, nil)
	case o.Refused != nil:
		w.drop(g, waitFailed, failureReply(o.Refused))
	default:
		w.drop(g, waitFailed, notSyncedReply(o.Have, w.Sync))
	}
}
