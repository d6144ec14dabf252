package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A failover takes longer than DoubtLimit, and the calls that were on their way get their answers at the new primary.
func TestCallsOnTheirWayOutliveAFailover(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	p := startProxy(t, srv, func(o *Options) {
		o.Lease = time.Minute
		o.Failover = func() time.Duration { return doubtLimit + time.Second }
	})
	holder, taker := p.session(2), p.session(2)
	holder.fence("LOCK held")
	srv.Pause()
	holder.send("UNLOCK held")
	taker.send("LOCK k")
	srv.Kill() // the calls are lost with it, or run before
	holder.quiet(doubtLimit + 500*time.Millisecond)
	srv.Restart()
	if got := holder.reply(); got != ":1" {
		t.Errorf("UNLOCK: %s", got)
	}
	fenceIn(t, taker.reply())
}
