package lockcmds

import (
	"context"
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
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
