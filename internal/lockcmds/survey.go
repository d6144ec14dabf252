package lockcmds

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// Hold is one hold of a lock through an engine, as operators see it.
type Hold struct {
	Key          string
	Holds, Fence int64
	Since        time.Time     // when the command was sent that acquired it
	TTL          time.Duration // the rest of the lease
	Fixed        bool          // the client has set the lease: it is not renewed
	Mode         string        // in the words of LOCKINFO
	Client       contract.ClientInfo
}

// EachHold calls f for the holds of locks through this engine, in no order. It looks at them in slices, and f is called
// without locks. A hold that is there all the time is seen, perhaps twice. Not for an event loop.
func (e *Engine) EachHold(f func(Hold)) {
	var slice []lockInfo
	for end := -1; end != 0; {
		slice, end = e.heldSlice(slice[:0], end)
		for _, i := range slice {
			f(Hold{
				Key: i.Key, Holds: i.Holds, Fence: i.Fence, Since: i.Since, TTL: time.Duration(i.TTL) * time.Millisecond, Fixed: i.Fixed, Mode: i.Mode, Client: i.Client,
			})
		}
		runtime.Gosched()
	}
}

// EachContended calls f for the locks that clients wait for through this engine, as EachHold does.
func (e *Engine) EachContended(f func(Contended)) {
	slice := make([]Contended, 0, listSlice)
	for end := -1; end != 0; {
		slice, end = e.contended(slice[:0], end)
		for _, c := range slice {
			f(c)
		}
		runtime.Gosched()
	}
}

// Describe asks Redis for the holders of a lock, on the engine's own connection. Requires no locks.
func (e *Engine) Describe(ctx context.Context, key string) (script.Described, error) {
	return runFor(ctx, e.client, script.Info{Key: key}.Call(), script.DecodeDescribed)
}

// Force ends a lock for an operator, as FORCEUNLOCK does, if it is still held by the grant with that fence; 0: by one
// without a fence. false: it is not. Requires no locks.
func (e *Engine) Force(ctx context.Context, key string, fence int64, operator string) (ended bool, err error) {
	all, err := runFor(ctx, e.client, script.Force{Key: key, Fence: fence}.Call(), script.DecodeForced)
	for _, a := range all {
		e.log.Log(logging.Audit, "lock ended by an operator", logging.Text("key", key), logging.Text("owner", a.Owner), zap.Int64("fence", a.Fence),
			zap.String("operator", operator), zap.String("user", cmp.Or(e.opts.User, "default")))
		e.forced(key, a)
	}
	return len(all) > 0, err
}

// forced says that this engine has ended a grant by force, or by its handle. Requires no locks of this package.
func (e *Engine) forced(key string, ended script.Forced) {
	e.Forced(key, ended)
	if ended.Fence > 0 {
		e.tellAgain(key, ended)
	}
	if others := e.opts.Forced; others != nil {
		e.calls.Background(jobs.Loss, func() { others(key, ended) })
	}
}
