package lockcmds

import (
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// look asks Redis whether a grant goes on, if it is held here. handle: its end by its handle was told. Requires no locks.
func (e *Engine) look(lock string, fence int64, handle bool) {
	defer e.guard.Stop()
	k, ok := e.beginLook(lock, fence)
	if !ok {
		return
	}
	e.calls.Background(jobs.Loss, func() {
		for again := true; again; again = e.endLook(k, fence) {
			held, err := runFor(e.life, e.client, script.Info{Key: lock}.Call(), script.DecodeHolder)
			if err == nil && held.Fence != fence {
				e.Forced(lock, script.Forced{Held: true, Owner: k.Owner, Fence: fence, Handle: handle})
			}
		}
	})
}

// tellAgain tells the proxies of a grant that was ended by force once more: the holder's may not have listened yet, or
// not at that moment. Only one that has the hold still takes notice.
func (e *Engine) tellAgain(lock string, ended script.Forced) {
	e.calls.After(tellAgainAfter, jobs.Loss, func() {
		if err := e.client.Node(lock).Publish(e.life, []redislink.Message{{Channel: script.ForcedChannel, Text: ended.Message(lock)}}); err != nil {
			e.log.Debug("the end of a grant was not told", zap.Error(err))
		}
	})
}

// tellAgainAfter is how much later: a proxy that has just granted its first lock listens by then.
const tellAgainAfter = time.Second
