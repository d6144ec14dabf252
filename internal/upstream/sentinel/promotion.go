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
func (w *Watcher) look(p rising) {
	if !w.election.believes(p.replica, p.primary, w.sentinels.Configured(p.by)) {
		return
	}
	select {
	case w.asks <- p.replica:
	default: // one is asked, and another one waits
	}
}

// watchPromotions asks replicas that are being promoted, until ctx ends.
func (w *Watcher) watchPromotions(ctx context.Context) {
	for {
		select {
		case addr := <-w.asks:
			if w.rises(ctx, addr) {
				select {
				case w.risen <- addr:
				case <-ctx.Done():
				}
			}
		case <-ctx.Done():
			return
		}
	}
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

// followPromoted publishes a promoted replica ahead of the Sentinels' answers. The epoch stays: their next one is
// greater.
func (w *Watcher) followPromoted(addr string) {
	if present := w.election.present; present.addr != "" && present.addr != addr {
		w.publish(view{present.epoch, addr})
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
		// A connection without credentials is not told the role. Then each connection of a client finds it out.
		next := w.role(ctx, t.addr)
		t.proved = next == dial.Primary || next == dial.Untold
		if t.proved && t.proof == fallen {
			present := w.role(ctx, t.from.addr)
			t.proved = present == dial.Replica || present == dial.Unreachable
		}
		select {
		case w.tried <- t:
		case <-ctx.Done():
		}
	})
}
