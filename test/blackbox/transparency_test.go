package blackbox

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// SHUTDOWN is Redis's to obey. A client that asked for it sees its connection end.
func TestShutdownReachesRedis(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	for _, refused := range [][2]string{{"x", "-ERR syntax error\r\n"}, {"ABORT", "-ERR No shutdown in progress.\r\n"}} {
		c.Script("SHUTDOWN "+refused[0], refused[1])
	}
	c.Send("SHUTDOWN", "NOSAVE")
	if got, err := c.Frame(); got != "" || err == nil {
		t.Errorf("SHUTDOWN was answered %q", got)
	}
	proxytest.WaitFor(t, "Redis to be gone", func() bool { return srv.Redis.Pid() == 0 })
}

// DUMP and RESTORE pass whatever there may be in a value.
func TestEveryByteIsPassedOn(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := string(every)
	newBench(t).both(t, func(s *proxytest.Side, proto int) {
		c := s.Speaking("a", proto)
		for _, v := range []string{binary, "", "\r\n", "*3\r\n", strings.Repeat("x", 1<<16), strings.Repeat(binary, 1<<11)} {
			key := v[:min(len(v), 100)]
			c.Do("SET", key, v)
			c.Do("GET", key)
			c.Do("ECHO", v)
			_, dump, _ := strings.Cut(c.Quiet("DUMP", key), "\r\n")
			c.Do("RESTORE", "copy", "0", dump[:len(dump)-2], "REPLACE")
			c.Each("GET copy", "OBJECT ENCODING copy")
		}
	})
}
