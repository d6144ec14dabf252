package lockcmds

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// failureOf is how a question to Redis about the queue has ended.
func failureOf(err error) table.Trouble {
	if err == nil {
		return table.OK
	}
	if _, refused := asRefusal(err); refused && !isPostponed(err) && !isBusy(err) {
		return table.Final
	}
	return table.Passing
}

// removePlaces takes places out of the queue in Redis.
func (e *keeper) removePlaces(key string) {
	e.calls.Retry(cleanup{
		What: "leave the fair queue", Key: key, Limit: e.opts.fairWait,
		Task: func(ctx context.Context) error {
			var places []string
			e.step(func(t *table.Table) { places = t.Departing(key) })
			if len(places) == 0 {
				return nil
			}
			_, err := runFor(ctx, e.client, script.Leave{Key: key, Places: places}.Call(), script.DecodeCount)
			return err
		},
		Done: func(bool) { e.step(func(t *table.Table) { t.Departed(key) }) },
	})
}

// lookDelay is longer than a free lock is kept for a waiter.
const lookDelay = 300 * time.Millisecond

// lookLaterLocked looks after a lock that was released while others waited: the one for which it is kept may not come.
// Requires keeper.mu.
func (e *keeper) lookLaterLocked(key string) {
	if _, pending := e.looks[key]; pending {
		return
	}
	e.looks[key] = struct{}{}
	e.opts.Clock.AfterFunc(lookDelay, func() { e.jobs.Submit(jobs.Urgent, func() { e.lookAfter(key) }) })
}

// lookAfter tells others in the queue of a free lock. While it is kept for a waiter, by a later release, it looks again.
func (e *keeper) lookAfter(key string) {
	kept, err := runFor(e.life, e.client, script.Look{Key: key}.Call(), script.DecodeDone)
	e.step(func(*table.Table) {
		delete(e.looks, key)
		if kept && err == nil {
			e.lookLaterLocked(key)
		}
	})
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

// refresh puts off the deadlines of places in Redis.
func (e *keeper) refresh(q *table.Queue, places []string) {
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		call := script.Refresh{Key: q.Names().Key, Wait: e.opts.fairWait, Places: batch}.Call()
		n, err := runFor(e.life, e.client, call, script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || n < len(batch)
	}
	e.step(func(*table.Table) { q.Refreshed(lost) })
}

// listPlaces asks Redis for the places in the queue of a lock.
func (e *keeper) listPlaces(q *table.Queue) {
	call := script.Places{Key: q.Names().Key, Most: table.SeenLimit}.Call()
	places, err := runFor(e.life, e.client, call, script.DecodePlaces)
	e.step(func(*table.Table) { q.PlacesListed(places, failureOf(err)) })
}

// askHead asks Redis whose place is the first.
func (e *keeper) askHead(q *table.Queue, look bool) {
	place, err := runFor(e.life, e.client, script.Head{Key: q.Names().Key}.Call(), script.DecodeHead)
	e.step(func(*table.Table) { q.HeadTold(look, place, failureOf(err)) })
}

// removeHead removes the first place if its waiter is stale.
func (e *keeper) removeHead(q *table.Queue, place string, force bool) {
	key := q.Names().Key
	call := script.RemoveHead{Key: key, Place: place, Force: force}.Call()
	a, err := runFor(e.life, e.client, call, script.DecodeHeadRemoved)
	if a.Removed {
		e.opts.Logger.Info("stale fair waiter removed", logging.Text("key", key))
	}
	e.step(func(*table.Table) { q.HeadRemoved(place, a.Removed, a.Receivers, failureOf(err)) })
}
