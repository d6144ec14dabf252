package lockcmds

import (
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// look asks Redis whether the grant of a message goes on, if it is held here. If it is over, that is a loss, unless the
// message proves that it was released by its handle. Requires no locks.
func (e *Engine) look(m script.ForcedMessage) {
	defer e.guard.Stop()
	k, ok := e.beginLook(m.Lock, m.Fence)
	if !ok {
		return
	}
	e.calls.Background(jobs.Loss, func() {
		for again := true; again; again = e.endLook(k, m.Fence) {
			held, err := runFor(e.life, e.client, script.Info{Key: m.Lock, Owner: k.Owner}.Call(), script.DecodeDescribed)
			if err == nil && held.Find(m.Fence) == nil {
				e.Forced(m.Lock, script.Forced{Owner: k.Owner, Fence: m.Fence, Handle: m.IsHandle(k.Owner)})
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
