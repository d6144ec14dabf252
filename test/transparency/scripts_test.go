package transparency

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Redis does not know the scripts yet. A call that had to be repeated would run behind what the client has sent after it.
func TestFirstUseOfAScriptKeepsTheOrder(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
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
}

// The result of a script in the debugger comes behind the end of the session, and ends the connection.
func TestTheDebuggerIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	const script = "local a = redis.call('incr', KEYS[1])\nredis.debug('hey')\nreturn {'subscribe', 'x', a}"
	b.Both(t, func(s *proxytest.Side, proto int) {
		for _, mode := range []string{"YES", "SYNC"} {
			for _, words := range [][]string{{"s", "p a", "w", "c"}, {"c"}, {"redis get n", "b 3", "c", "c"}, {"abort"}, {"e error('x')", "c"}} {
				c := s.Speaking("debugger", proto)
				c.Each("GET n", "SCRIPT DEBUG "+mode, "GET n")
				c.Do("EVAL", script, "1", "n")
				c.Each(words...)
				c.End()
			}
			c := s.Speaking("others", proto)
			c.Each("GET n", "SCRIPT DEBUG "+mode, "SCRIPT DEBUG NO", "EVAL 'return 1' 0", "GET n", "SCRIPT DEBUG MAYBE", "SCRIPT DEBUG", "GET n",
				"SCRIPT DEBUG "+mode, "SUBSCRIBE c", "UNSUBSCRIBE c", "MULTI", "GET n", "EXEC", "RESET", "GET n")
			c.Each("MULTI", "SCRIPT DEBUG "+mode, "EXEC", "GET n", "EVAL 'return 1' 0", "c")
			c.End()
		}
	})
}
