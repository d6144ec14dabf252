package lockcmds

import (
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// look asks Redis whether a grant goes on, if it is held here. released: one of its holds was released by its handle, so
// that the end of the grant is no loss. Requires no locks.
func (e *Engine) look(lock string, fence int64, released bool) {
	defer e.guard.Stop()
	k, ok := e.beginLook(lock, fence)
	if !ok {
		return
	}
	e.calls.Background(jobs.Loss, func() {
		for again := true; again; again = e.endLook(k, fence) {
			askedAt := e.calls.Clock.Now()
			held, err := runFor(e.life, e.client, script.Info{Key: lock}.Call(), script.DecodeHolder)
			switch {
			case err != nil:
			case released:
				e.step(func(t *table.Table) { t.ReleasedElsewhere(k, fence, held.Fence == fence, held.Holds, askedAt) })
			case held.Fence != fence:
				e.Forced(lock, script.Forced{Held: true, Owner: k.Owner, Fence: fence})
			}
		}
	})
}

// tellAgain tells the proxies of a grant that was ended by force once more: the holder's may not have listened yet, or
// not at that moment. Only one that has the hold still takes notice.
func (e *Engine) tellAgain(lock string, fence int64) {
	e.calls.After(tellAgainAfter, jobs.Loss, func() { e.tellHolders(lock, strconv.FormatInt(fence, 10)+" "+lock) })
}

// tellHolders publishes a message about a grant to the proxies.
func (e *Engine) tellHolders(lock, text string) {
	if err := e.client.Node(lock).Publish(e.life, []redislink.Message{{Channel: script.ForcedChannel, Text: text}}); err != nil {
		e.log.Debug("the end of a grant was not told", zap.Error(err))
	}
}

// tellAgainAfter is how much later: a proxy that has just granted its first lock listens by then.
const tellAgainAfter = time.Second
