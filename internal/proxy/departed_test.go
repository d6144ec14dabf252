package proxy

import (
	"testing"
	"time"

	"lockproxy/internal/redistest"
)

// departures are the ways in which a client may go while its session waits.
var departures = []string{"half-close", "close", "reset"}

// nothingRemains waits until a proxy has no client any more, and no connection that serves one.
func nothingRemains(t *testing.T, srv *Server) {
	t.Helper()
	redistest.Eventually(t, patience, "nothing to remain", func() bool {
		users := 0
		for _, l := range srv.shared.Upstream.Lanes() {
			users += l.Users
		}
		s := srv.Stats()
		return s.Clients == 0 && len(s.PinReasons) == 0 && s.Waiting == 0 && users == 0
	})
}

// Under SCRIPT DEBUG only the client's own next words, or its end, let a script go on. With SYNC, all of Redis waits meanwhile.
func TestTheEndOfAClientEndsItsDebugger(t *testing.T) {
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		for _, mode := range []string{"YES", "SYNC"} {
			for _, behind := range []string{"CLIENT SETNAME x", "LOCK k", "SELECT 1", "QUIT", "*x", "BLPOP l 0", "MULTI\r\nCLIENT SETNAME x"} {
				for _, how := range departures {
					c := dialClient(t, address(srv))
					if got := c.quiet("SCRIPT", "DEBUG", mode); got != "+OK\r\n" {
						t.Fatal(got)
					}
					c.raw(inline("EVAL 'return 1' 0", "GET k", behind)) // Redis has read the GET before the debugger begins
					if got, err := c.frame(); err != nil || got[0] != '*' {
						t.Fatalf("the debugger: %q, %v", got, err)
					}
					hangups[how](c)
					nothingRemains(t, srv)
					_ = c.nc.Close()
					other := dialClient(t, address(srv))
					other.quiet("GET", "k")
					_ = other.nc.Close()
					redistest.Eventually(t, time.Second, "the other client to be gone", func() bool { return srv.Stats().Clients == 0 })
				}
			}
		}
	})
}
