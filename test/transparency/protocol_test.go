package transparency

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
	"github.com/lockproxy/lockproxy/internal/resp"
)

func TestTwoProtocolVersionsAtOnce(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	b.Compare(t, func(s *proxytest.Side) {
		s.HideHelloID()
		two, three, changing := s.Client("two"), s.Client("three"), s.Client("changing")
		three.Do("HELLO", "3")
		two.Do("HSET", "h", "f", "v", "g", "w")
		shapes := []string{"HGETALL h", "GET nosuch", "BLPOP nosuch 0.001", "ZADD z 1.5 m", "ZSCORE z m", "ZRANGE z 0 -1 WITHSCORES", "SMEMBERS s", "EVAL \"return {false, {1}}\" 0", "CONFIG GET maxmemory", "XREAD STREAMS x 0", "HELLO"}
		for step := range 8 {
			for _, cmd := range shapes {
				for _, c := range []*proxytest.Client{two, three, changing} {
					c.Together(cmd)
				}
			}
			switch step % 4 {
			case 0:
				changing.Do("HELLO", "3")
			case 1:
				changing.Do("HELLO", "2")
			case 2:
				changing.Together("HELLO 3", "HGETALL h", "HELLO 2", "HGETALL h", "HELLO 3")
			default:
				changing.Do("RESET")
			}
		}
	})
}

func TestRequestsInEveryForm(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]string{
		"inline":                           "SET k \"a b\\x41\\n\"\r\nGET k\n  GET   k  \r\nset 'k' 'single \\' quote'\r\nget k\r\nPING\r\n",
		"inline names of one length":       "PING\r\nAPPEND k v\r\nSELECT 5\r\nDBSIZE\r\n",
		"empty lines":                      "\r\n\n\r\nPING\r\n\r\n*0\r\n*-1\r\n*0\r\n\r\nPING\r\n",
		"empty name":                       "*1\r\n$0\r\n\r\nPING\r\n*2\r\n$0\r\n\r\n$0\r\n\r\nPING\r\n",
		"empty arguments":                  "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
		"unbalanced":                       "PING\r\nGET \"x\r\nPING\r\n",
		"bad multibulk":                    "PING\r\n*x\r\nPING\r\n",
		"beyond any number":                "*1\r\n$9223372036854775807\r\nPING\r\n",
		"too large":                        "SET k v\r\n*2\r\n$3\r\nGET\r\n$536870913\r\nPING\r\n",
		"negative bulk":                    "*2\r\n$3\r\nGET\r\n$-1\r\nPING\r\n",
		"no dollar":                        "*2\r\n$3\r\nGET\r\n:1\r\nPING\r\n",
		"wrong end":                        "*2\r\n$4\r\nECHO\r\n$3\r\nabcXYPING\r\n",
		"too big inline":                   strings.Repeat("x", 70000),
		"too big bulk header":              "*1\r\n$" + strings.Repeat("1", 70000),
		"http":                             "GET / HTTP/1.0\r\n\r\nPING\r\n",
		"first command bad":                "*3\r\n$3\r\nSET\r\n$x\r\n",
		"pipelined transaction and errors": "MULTI\r\nSET k v\r\n*x\r\nEXEC\r\n",
	}
	for name, raw := range scripts {
		t.Run(name, func(t *testing.T) {
			b.Compare(t, func(s *proxytest.Side) {
				for _, size := range []int{len(raw), 7, 1} {
					if len(raw) > 1000 && size < len(raw) {
						continue
					}
					c := s.Client(fmt.Sprint(size))
					for rest := raw; len(rest) > 0; {
						n := min(size, len(rest))
						c.Raw(rest[:n])
						rest = rest[n:]
					}
					c.HalfClose()
					c.End()
				}
			})
		})
	}
}

// A client may send everything before it reads anything.
func TestHugePipelineBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
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
			c := srv.Dial(t)
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
	b := proxytest.NewBench(t, "--client-output-buffer-limit", "pubsub 0 0 0") // Redis has a limit of its own
	b.Redis.Do(t, "SET", "k", strings.Repeat("v", 100_000))
	for _, first := range []string{"", "WATCH k", "SUBSCRIBE ch"} {
		t.Run(first, func(t *testing.T) {
			srv := proxytest.Start(t, b.Redis, func(o *proxy.Options) { o.Limits.Output = 16 << 20 })
			slow, good := srv.Dial(t), srv.Dial(t)
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
}

// redis-cli --pipe sends everything, then asks for an echo, and counts.
func TestRedisCLIPipe(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli: ", err)
	}
	b := proxytest.NewBench(t)
	host, port, _ := strings.Cut(b.Proxy.Addr(), ":")
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
	b := proxytest.NewBench(t)
	srv := proxytest.Start(t, b.Redis, func(o *proxy.Options) { o.Limits.Unanswered = 1024 })
	c := srv.Dial(t)
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
}
