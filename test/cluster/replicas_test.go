package cluster

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// WAIT counts the replicas that have all writes of a session, at each server to which it has written.
func TestWaitAsksAllServersWrittenTo(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	keys := []string{proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])}
	for engine, srv := range proxytest.StartOverCluster(t, c) {
		both, first, last := srv.Dial(t), srv.Dial(t), srv.Dial(t)
		check := func(p *proxytest.Client, want string, args ...string) {
			t.Helper()
			if got := p.Quiet(args...); got != want {
				t.Errorf("%s: %q: %q, want %q", engine, args, got, want)
			}
		}
		stopped := c.Nodes[4] // the replica of the second server
		stopped.Pause()
		both.Each("SET "+keys[1]+" x", "SET "+keys[0]+" x")
		first.Quiet("SET", keys[0], "x")
		last.Raw("MULTI\r\nSET " + keys[1] + " x\r\nEXEC\r\n")
		for range 3 {
			last.Expect(1)
		}
		check(both, ":0\r\n", "WAIT", "1", "100")
		check(first, ":1\r\n", "WAIT", "1", "5000")
		check(last, ":0\r\n", "WAIT", "1", "100")
		both.Raw("WAIT 1 100\r\nWAIT 0 100\r\nPING\r\n")
		both.Gets(":0", ":0", "+PONG")
		check(both, "-ERR timeout is not an integer or out of range\r\n", "WAIT", "1", "x")
		stopped.Continue()
		check(both, ":1\r\n", "WAIT", "1", "5000")
		check(last, ":1\r\n", "WAIT", "1", "5000")
		c.AwaitReady()
	}
}
