package blackbox

import (
	"io"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A client that has its last reply knows already that the connection has ended, so no command of its crosses the end.
func TestTheEndOfTheConnectionComesWithTheLastReply(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	const rounds = 500
	late := 0
	for range rounds {
		c := srv.Dial(t)
		c.Script("QUIT", "+OK")
		if !netio.Left(c.Conn) {
			late++
		}
		_ = c.Conn.Close()
	}
	if late > 0 {
		t.Errorf("the end came later than the reply %d times of %d", late, rounds)
	}
}

// Bytes that the proxy has not read make the kernel reset the connection when it is closed. The last reply is on its
// way by then.
func TestTheLastReplyArrivesAlthoughInputIsLeft(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	const rounds = 200
	input := "*1\r\n$4\r\nPING\r\n*1\r\n$99999999999\r\n" + strings.Repeat("x", 256<<10)
	for range rounds {
		c := srv.Dial(t)
		go func() { _, _ = io.WriteString(c.Conn, input) }() // may fail: the connection ends meanwhile
		c.Gets("+PONG", "-ERR Protocol error: invalid bulk length\r\n")
		_ = c.Conn.Close()
	}
}
