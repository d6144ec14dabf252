package blackbox

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestEveryLossIsTold loses more locks than a session's share of what is remembered without being asked for.
func TestEveryLossIsTold(t *testing.T) {
	t.Parallel()
	const n = 1500
	for _, how := range []string{"FLUSHALL", "FORCEUNLOCK", "deadline"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Locks.Lease = 6 * time.Second })
			c, other := srv.Dial(t), srv.Dial(t)
			var lock, unlock strings.Builder
			for i := range n {
				key := strconv.Itoa(i)
				if how == "deadline" {
					key += " PX 2000"
				}
				lock.WriteString("LOCK " + key + "\r\n")
				unlock.WriteString("UNLOCK " + strconv.Itoa(i) + "\r\n")
			}
			c.Raw(lock.String())
			for range n {
				c.Gets(":")
			}
			switch how {
			case "FLUSHALL":
				redis.Do(t, "FLUSHALL")
			case "FORCEUNLOCK":
				other.Raw(strings.ReplaceAll(unlock.String(), "UNLOCK", "FORCEUNLOCK"))
				for range n {
					other.Gets(":1")
				}
			}
			proxytest.WaitFor(t, "the losses", func() bool { return srv.Stats().Held == 0 })
			for _, want := range []string{"-LOSTLEASE ", "-NOTHELD "} {
				c.Raw(unlock.String())
				for i := range n {
					if got, err := c.LateFrame(); err != nil || !strings.HasPrefix(got, want) {
						t.Fatalf("%d: %q, %v, want %s", i, got, err, want)
					}
				}
			}
		})
	}
}
