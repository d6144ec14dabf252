package proxy

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/direct"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A client that has its last reply knows already that the connection has ended, so no command of its crosses the end.
func TestTheEndOfTheConnectionComesWithTheLastReply(t *testing.T) {
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		s := startStopping(t, redis, engine)
		const rounds = 500
		late := 0
		for range rounds {
			c := dialClient(t, address(s.Server))
			if got := c.quiet("QUIT"); got != "+OK\r\n" {
				t.Fatal(got)
			}
			if !direct.Left(c.nc) {
				late++
			}
			_ = c.nc.Close()
		}
		if late > 0 {
			t.Errorf("the end came later than the reply %d times of %d", late, rounds)
		}
	})
}
