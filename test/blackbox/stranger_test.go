package blackbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Clients that have not authenticated share a connection that Redis would close for too many refusals at once, or for one
// command that is too large. None of them may bring that about.
func TestStrangersKeepTheirLane(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	long := strings.Repeat("k", 16<<10)
	srv := proxytest.Start(t, redis)
	for _, line := range []string{"MGET" + strings.Repeat(" k", 30), "MGET" + strings.Repeat(" k", 30_000), "SET k " + long + long} {
		t.Run(fmt.Sprintf("a line of %d", len(line)), func(t *testing.T) {
			c := srv.Dial(t)
			c.Raw(proxytest.Inline(line, line, "AUTH secret"))
			c.Gets("-NOAUTH ", "-NOAUTH ", "+OK")
		})
	}
	t.Run("crowd", func(t *testing.T) {
		const clients, each = 200, 20
		var crowd []*proxytest.Client
		for range clients {
			c := srv.Dial(t)
			c.Raw(strings.Repeat(proxytest.Inline("GET k"), each) + proxytest.Inline("AUTH secret"))
			crowd = append(crowd, c)
		}
		for _, c := range crowd {
			for range each {
				c.Gets("-NOAUTH ")
			}
			c.Gets("+OK")
		}
	})
}
