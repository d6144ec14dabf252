package cluster

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
)

// The writes of a session are at several servers, on shared connections: WAIT is refused.
func waitIsRefused(t *testing.T, srv *proxytest.Proxy) {
	const refusal = "-ERR WAIT is not available in front of a cluster: LOCK ... SYNC n waits for replicas\r\n"
	p := srv.Dial(t)
	p.Script("SET k v", "+OK", "WAIT 0 0", refusal, "WAITAOF 0 0 0", "-ERR WAITAOF is not available ", "GET k", "$1\r\nv",
		"WATCH k", "+OK", "WAIT 1 0", refusal, "MULTI", "+OK", "GET k", "+QUEUED", "WAIT 0 0", refusal, "EXEC", "-EXECABORT",
		"MULTI", "+OK", "WAIT 0 0", refusal, "GET k", "+QUEUED", "EXEC", "-EXECABORT", "GET k", "$1\r\nv")
}
