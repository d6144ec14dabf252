package transparency

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
)

// Redis does not know the scripts yet. A call that had to be repeated would run behind what the client has sent after it.
func TestFirstUseOfAScriptKeepsTheOrder(t *testing.T) {
	t.Parallel()
	proxytest.EachEngine(t, func(t *testing.T, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		steps := []struct{ cmd, reply string }{
			{"LOCK k", ":"},
			{"LOCKINFO k", "*20"},
			{"EXTENDLOCK k PX 60000", ":1"},
			{"UNLOCK k", ":1"},
			{"TRYLOCK k", ":"},
			{"FORCEUNLOCK k", ":1"},
			{"LOCKINFO k", "$-1"},
			{"UNLOCK k", "-LOSTLEASE"},
		}
		for _, step := range steps {
			c.Send(strings.Fields(step.cmd)...)
		}
		for _, step := range steps {
			c.Gets(step.reply)
		}
	})
}
