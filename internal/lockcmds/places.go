package lockcmds

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// failureOf is how a question to Redis about the queue has ended.
func failureOf(err error) table.Trouble {
	if err == nil {
		return table.OK
	}
	if _, refused := asRefusal(err); refused && !isPostponed(err) {
		return table.Final
	}
	return table.Passing
}

// removePlaces takes places out of the queue in Redis.
func (c *effectCarrier) removePlaces(key string) {
	c.Calls.Retry(cleanup{
		What: "leave the fair queue", Key: key, Limit: c.Wait,
		Task: func(ctx context.Context) error {
			var places []string
			c.Step(func(q *table.Set) { places = q.Departing(key) })
			if len(places) == 0 {
				return nil
			}
			_, err := runFor(ctx, c.Calls.Client, script.Leave{Key: key, Places: places}.Call(), script.DecodeCount)
			return err
		},
		Done: func(bool) { c.Step(func(q *table.Set) { q.Departed(key) }) },
	})
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

// refresh puts off the deadlines of places in Redis.
func (c *effectCarrier) refresh(q *table.Queue, places []string) {
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		n, err := runFor(
			c.Calls.Life, c.Calls.Client, script.Refresh{Key: q.Names().Key, Wait: c.Wait, Places: batch}.Call(), script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || n < len(batch)
	}
	c.Step(func(*table.Set) { q.Refreshed(lost) })
}

// listPlaces asks Redis for the places in the queue of a lock.
func (c *effectCarrier) listPlaces(q *table.Queue) {
	name := script.Queue(q.Names().Key)
	places, err := c.Calls.Client.Node(name).List(c.Calls.Life, name, table.SeenLimit)
	c.Step(func(*table.Set) { q.PlacesListed(places, failureOf(err)) })
}

// askHead asks Redis whose place is the first.
func (c *effectCarrier) askHead(q *table.Queue, look bool) {
	place, err := runFor(c.Calls.Life, c.Calls.Client, script.Head{Key: q.Names().Key}.Call(), script.DecodeHead)
	c.Step(func(*table.Set) { q.HeadTold(look, place, failureOf(err)) })
}

// removeHead removes the first place if its waiter is stale.
func (c *effectCarrier) removeHead(q *table.Queue, place string, force bool) {
	key := q.Names().Key
	a, err := runFor(c.Calls.Life, c.Calls.Client, script.RemoveHead{Key: key, Place: place, Force: force}.Call(), script.DecodeHeadRemoved)
	if a.Removed {
		c.Calls.Log.Info("stale fair waiter removed", logging.Text("key", key))
	}
	c.Step(func(*table.Set) { q.HeadRemoved(place, a.Removed, a.Receivers, failureOf(err)) })
}
