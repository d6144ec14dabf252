package blackbox

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A client may ask at once for thousands of replies that cost the proxy much. Other clients are served in between.
func TestAFloodOfRepliesThatTheProxyMakesHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const many = 10000
	lines := []string{
		"INFO lockproxy", "INFO clients", "INFO", "COMMAND LIST", "COMMAND COUNT", "COMMAND INFO lock get", "COMMAND DOCS lock", "CLIENT INFO", "CLIENT ID", "CLIENT LIST", "LOCKLIST",
	}
	srv := proxytest.Start(t, redistest.Start(t))
	other := srv.Dial(t)
	other.Do("GET", "k")
	for _, line := range lines {
		flood := []byte(strings.Repeat(string(resp.AppendCommand(nil, strings.Fields(line)...)), many))
		c := srv.Dial(t)
		var answered atomic.Int64
		first, written, read := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(written)
			_, _ = c.Conn.Write(flood) // the connection ends before all is written
		}()
		go func() {
			defer close(read)
			for {
				if _, err := c.Frame(); err != nil {
					return
				}
				if answered.Add(1) == 1 {
					close(first)
				}
			}
		}()
		select {
		case <-first:
		case <-read:
			t.Fatal("no reply")
		}
		for range 3 {
			other.Do("GET", "k")
		}
		if n := answered.Load(); n > many/2 {
			t.Errorf("%d replies to %s were made before 3 of another client", n, line)
		}
		_ = c.Conn.Close()
		<-written
		<-read
	}
}
