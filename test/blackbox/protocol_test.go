package blackbox

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A client may send everything before it reads anything.
func TestHugePipelineBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		b := newBench(t)
		value := strings.Repeat("v", 1024)
		const n = 40_000 // replies of 40 MiB, more than the sockets take
		want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		b.Redis.Do(t, "SET", "k", value)
		forms := map[string]string{
			"on a lane": strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", n),
			"on a pin":  "*2\r\n$5\r\nWATCH\r\n$1\r\nx\r\n" + strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", n),
		}
		srv := b.Proxy
		for name, raw := range forms {
			t.Run(name, func(t *testing.T) {
				c := dial(srv)
				_ = c.Conn.SetDeadline(time.Now().Add(time.Minute))
				if _, err := io.WriteString(c.Conn, raw); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(name, "on a pin") {
					c.Gets("+OK")
				}
				_ = c.Conn.SetReadDeadline(time.Now().Add(time.Minute)) // that of a single frame is shorter
				all, got := io.MultiReader(takeBuffer(c), c.Conn), make([]byte, len(want))
				for i := range n {
					if _, err := io.ReadFull(all, got); err != nil {
						t.Fatalf("reply %d: %v", i, err)
					}
					if string(got) != want {
						t.Fatalf("reply %d is %q", i, got)
					}
				}
			})
		}
	})
}

// takeBuffer is what a peer has read and not yet handed out.
func takeBuffer(c *proxytest.Client) io.Reader {
	r := bytes.NewReader(c.Buf)
	c.Buf = nil
	return r
}

// A client that does not read its replies is cut off at its limit, and meanwhile others have theirs.
func TestSlowReaderIsCutOffAndDelaysNobody(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		b := newBench(t, "--client-output-buffer-limit", "pubsub 0 0 0") // Redis has a limit of its own
		b.Redis.Do(t, "SET", "k", strings.Repeat("v", 100_000))
		for _, first := range []string{"", "WATCH k", "SUBSCRIBE ch"} {
			t.Run(first, func(t *testing.T) {
				srv := proxytest.Start(t, b.Redis, proxytest.WithTLS, func(o *proxy.Options) { o.Limits.Output = 16 << 20 })
				slow, good := dial(srv), dial(srv)
				slow.Side = &proxytest.Side{T: t}
				_ = slow.Socket().SetReadBuffer(4096)
				slow.Raw(proxytest.Inline(first))
				good.Quiet("PING")
				for range 1000 {
					if first == "SUBSCRIBE ch" {
						good.Quiet("PUBLISH", "ch", strings.Repeat("m", 100_000))
					} else {
						slow.Raw(proxytest.Inline("GET k"))
					}
					start := time.Now()
					good.Quiet("GET", "k")
					if d := time.Since(start); d > proxytest.Patience {
						t.Fatalf("a good client waited %v", d)
					}
					if srv.Stats().Closed["output_limit"] > 0 {
						return
					}
				}
				t.Error("the slow reader was never cut off")
			})
		}
	})
}

// redis-cli --pipe sends everything, then asks for an echo, and counts.
func TestRedisCLIPipe(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli: ", err)
	}
	b := newBench(t)
	host, port, _ := strings.Cut(b.Addr(), ":")
	cmd := exec.Command(cli, "-h", host, "-p", port, "--pipe")
	var in []byte
	for i := range 20_000 {
		in = resp.AppendCommand(in, "SET", "k"+strconv.Itoa(i), strings.Repeat("x", i%100))
		if i%5000 == 0 {
			in = resp.AppendCommand(in, "MULTI")
			in = resp.AppendCommand(in, "INCR", "n")
			in = resp.AppendCommand(in, "EXEC")
		}
	}
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "errors: 0, replies: 20012") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := b.Redis.Do(t, "DBSIZE"); n != int64(20_001) {
		t.Errorf("%v keys", n)
	}
}

// A client that is not read for the moment, because too much is unanswered, and says that it has finished, has everything
// executed all the same.
func TestEndOfInputWhilePausedLosesNothing(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		b := newBench(t)
		srv := proxytest.Start(t, b.Redis, proxytest.WithTLS, func(o *proxy.Options) { o.Limits.Unanswered = 1024 })
		c := dial(srv)
		const n = 2000 // what the proxy does not read meanwhile must fit into the sockets' buffers
		b.Redis.Pause()
		go func() {
			c.Raw(strings.Repeat(proxytest.Inline("ECHO "+strings.Repeat("x", 100)), n))
			c.HalfClose()
			b.Redis.Continue()
		}()
		for i := range n {
			if got, err := c.Frame(); err != nil {
				t.Fatalf("reply %d: %q, %v", i, got, err)
			}
		}
	})
}

// Once a client has the answer to QUIT, nothing of it is left at Redis.
func TestQuitEndsSubscriptionsBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	direct := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	for range 100 {
		c := srv.Dial(t)
		c.Quiet("SUBSCRIBE", "news")
		c.Script("QUIT", "+OK")
		direct.Script("PUBLISH news x", ":0")
		c.Ends()
	}
}

// Every sequence of two modes of CLIENT REPLY, with commands of each kind between and behind them.
func TestReplyModesAreRedisOwn(t *testing.T) {
	t.Parallel()
	modes := []string{"CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY BAD", "client reply skip", "CLIENT REPLY"}
	between := []string{"SET k v", "CLIENT ID x", "WATCH k", "CLIENT SETNAME x", "SELECT 1", "NOSUCH", "GET"}
	newBench(t).both(t, func(s *proxytest.Side, proto int) {
		c := s.Speaking("a", proto)
		for _, first := range modes {
			for _, second := range modes {
				for i, cmd := range between {
					end := fmt.Sprint("end-", first, second, i)
					c.Raw(proxytest.Inline(first, cmd, second, "GET k", cmd, "DISCARD", "CLIENT REPLY ON", `ECHO "`+end+`"`))
					c.Until(end)
				}
			}
		}
	})
}

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
