package sentinel

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// A promoted replica takes writes up to a second before any Sentinel says so, and in a planned failover the old primary
// takes writes as long, which are lost. So a replica that a Sentinel has told to become the primary is asked for its
// role until it is one.

const (
	// lookEvery is the pause between two questions for the role.
	lookEvery = 10 * time.Millisecond
	// promotionLimit bounds the questions. A promotion takes milliseconds.
	promotionLimit = 3 * time.Second
)

// rising is a Sentinel's word that it has told a replica to become the primary.
type rising struct {
	by      int // the number of the Sentinel
	replica string
	primary string // of the replica until now; both as announced
}

// look has a replica asked that a Sentinel promotes, if the Sentinel is believed: the question has the proxy's
// password.
func (w *Watcher) look(ctx context.Context, p rising) {
	present := w.election.present
	if p.replica != present.addr && w.election.believes(p.replica, p.primary, w.sentinels.Configured(p.by)) {
		w.try(ctx, proposal{view{present.epoch, p.replica}, promoted})
	}
}

// role asks an announced server for its role.
func (w *Watcher) role(ctx context.Context, addr string) dial.Role {
	return w.opts.Role(ctx, w.opts.Map.Of(addr))
}

// trial is a proposal whose proof is looked for.
type trial struct {
	proposal
	from   view
	proved bool
}

// try looks for the proof of a proposal. One is tried at a time: the next answer of a Sentinel brings the proposal
// again.
func (w *Watcher) try(ctx context.Context, p proposal) {
	if w.trying {
		return
	}
	w.trying = true
	t := trial{proposal: p, from: w.election.present}
	w.asking.Go(func() {
		t.proved = w.prove(ctx, t)
		select {
		case w.tried <- t:
		case <-ctx.Done():
		}
	})
}

// prove asks the servers of a trial.
func (w *Watcher) prove(ctx context.Context, t trial) bool {
	if t.proof == promoted {
		return w.rises(ctx, t.addr)
	}
	// A connection without credentials is not told the role. Then each connection of a client finds it out.
	if next := w.role(ctx, t.addr); next != dial.Primary && next != dial.Untold {
		return false
	}
	if t.proof != fallen {
		return true
	}
	present := w.role(ctx, t.from.addr)
	return present == dial.Replica || present == dial.Unreachable
}

// rises reports whether a replica becomes a primary.
func (w *Watcher) rises(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, promotionLimit)
	defer cancel()
	for ctx.Err() == nil {
		if w.role(ctx, addr) == dial.Primary {
			return true
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
	return false
}
