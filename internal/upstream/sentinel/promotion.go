package sentinel

import (
	"context"
	"time"
)

// A promoted replica takes writes up to a second before any Sentinel says so, and in a planned failover the old primary takes writes as
// long, which are lost. So a replica that a Sentinel has told to become the primary is asked for its role until it is one.

const (
	// lookEvery is the pause between two questions for the role.
	lookEvery = 10 * time.Millisecond
	// promotionLimit bounds the questions. A promotion takes milliseconds.
	promotionLimit = 3 * time.Second
	// aheadFor is the time in which the Sentinels must notice the promotion. After that their answers count again: the Sentinel that led
	// the failover has died.
	aheadFor = 5 * time.Second
)

// rising is a Sentinel's word that it has told a replica to become the primary.
type rising struct {
	by   int    // the number of the Sentinel
	addr string // of the replica, as announced
}

// look has a replica asked that a Sentinel promotes, if the Sentinel's word counts: the question has the proxy's password.
func (w *Watcher) look(p rising) {
	if !w.isBacked(p.by, p.addr) {
		return
	}
	select {
	case w.asks <- p.addr:
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
		if w.opts.IsPrimary(ctx, w.opts.Map.Of(addr)) {
			return true
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
	return false
}

// precede publishes a promoted replica ahead of the Sentinels' answers. The epoch stays: their next one is greater.
func (w *Watcher) precede(addr string) {
	v := w.opts.Primary.View()
	if v == nil || v.Announced == addr {
		return
	}
	w.publish(view{v.Epoch, addr})
	w.ahead = time.Now().Add(aheadFor)
}
