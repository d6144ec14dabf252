package lockcmds

import (
	"context"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// keeper is what an engine keeps, and does by itself: holds with their leases, waiters with their places in Redis,
// losses, and what clients have left behind. It knows no commands but those that are on their way.
type keeper struct {
	opts     Options // immutable after New
	jobs     jobs.Runner
	losses   *announcer
	calls    *calls
	failstop FailStop
	entries  *logging.Repeats // of the log, that clients or an outage may repeat
	client   scriptRunner
	watchdog *watchdog.Watchdog
	confirm  *confirmer
	defaults func() *Defaults // the present ones, which do not change
	crowd    string           // the name of the place that plain waiters share in a queue in Redis
	held     atomic.Int64     // len(table.Holds())

	mu       sync.Mutex // guards the fields below, and all sessions, holds and waiters
	table    *table.Table
	sessions map[uint64]*clientSession
	looks    map[string]struct{} // the locks for which lookLaterLocked has a timer
	draining bool                // no client may begin to wait
	hearing  jobs.Timer          // losses wait until the messages are in that may explain them; nil: none does
	waiting  int64               // table.Waiters(), as Options.Waiting counts it

	life context.Context // of the engine's own work; ended by Close or with Run's context
	end  context.CancelFunc
}

// noteDamage tells operators of a foreign value that the script of an acquire or a release has found in a key beside
// the lock.
func (e *keeper) noteDamage(key string, found script.Damage) {
	switch found {
	case script.NoDamage:
	case script.CounterReplaced:
		if f := e.opts.Events.Repaired; f != nil {
			f()
		}
		e.entries.Write(zap.WarnLevel, "the fence counter held no possible fence and was set to Redis's time", "",
			zap.String("counter", script.FenceOf(key, e.client.Servers().Slots)), logging.Text("key", key))
	case script.NoQueue:
		e.entries.Write(zap.WarnLevel, "the key of the fair queue has another type and counts as an empty queue", "",
			logging.Text("queue", script.Queue(key)), logging.Text("key", key))
	}
}
