package blackbox

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// bench is a Redis with a proxy in front of it: the same bytes sent to either must be answered by the same bytes.
type bench struct {
	*proxytest.Proxy
	t testing.TB // that the servers end with
}

// newBench starts a Redis and a proxy in front of it, which listens for TLS, too.
func newBench(t testing.TB, redisArgs ...string) *bench {
	t.Helper()
	redisArgs = append([]string{"--slowlog-log-slower-than", "-1"}, redisArgs...) // what is slow is chance
	return &bench{proxytest.Start(t, redistest.Start(t, redisArgs...), proxytest.WithTLS), t}
}

// clean makes Redis what it was at the start.
func (b *bench) clean(t testing.TB) {
	t.Helper()
	for _, cmd := range [][]any{
		{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"}, {"CONFIG", "RESETSTAT"}, {"SLOWLOG", "RESET"},
	} {
		b.Redis.Do(t, cmd...)
	}
}

// sides are the addresses at which a script is played.
func (b *bench) sides(srv *proxytest.Proxy) map[string]string {
	addrs := srv.Addrs()
	return map[string]string{"direct": b.Redis.Addr(), "proxy": addrs[0].String(), "proxy, TLS": "tls:" + addrs[1].String()}
}

// compare runs a script on direct connections, and through the proxy with plain clients and over TLS, and compares what
// the clients got.
func (b *bench) compare(t *testing.T, srv *proxytest.Proxy, script func(s *proxytest.Side)) {
	t.Helper()
	sides := b.sides(srv)
	b.awaitQuiet(t)
	direct := b.run(t, "direct", sides["direct"], script)
	if slices.ContainsFunc(direct, func(line string) bool { return strings.HasSuffix(line, proxytest.ErrTimeout.Error()) }) {
		t.Fatalf("the script expects more than Redis sends:\n%s", strings.Join(direct[max(0, len(direct)-9):], "\n"))
	}
	for _, side := range []string{"proxy", "proxy, TLS"} {
		b.awaitQuiet(t)
		if diff := cmp.Diff(direct, b.run(t, side, sides[side], script)); diff != "" {
			t.Errorf("replies differ (-direct +%s):\n%s", side, diff)
		}
	}
}

// awaitQuiet waits until the clients of the last run have gone.
func (b *bench) awaitQuiet(t *testing.T) {
	t.Helper()
	proxytest.WaitFor(t, "the clients of the last run to be gone", func() bool {
		info, _ := b.Redis.Do(t, "INFO").(string)
		return strings.Contains(info, "\npubsub_channels:0\r") &&
			strings.Contains(info, "\npubsub_patterns:0\r") &&
			strings.Contains(info, "\nblocked_clients:0\r")
	})
}

// run returns what the clients of a script get at an address.
func (b *bench) run(t *testing.T, title, addr string, script func(s *proxytest.Side)) []string {
	t.Helper()
	b.clean(t)
	s := &proxytest.Side{T: t, Redis: b.Redis, Addr: addr, Title: title}
	s.HideHelloID()
	s.Ignored = greetings
	script(s)
	s.Close()
	return s.Transcript
}

// greetings are what MONITOR tells of new connections, of the proxy or of another client. They come by chance.
var greetings = regexp.MustCompile(`^\+\d+\.\d+ \[\d+ [^\]]*\] "HELLO"`)

// both compares a script in RESP2 and in RESP3.
func (b *bench) both(t *testing.T, script func(s *proxytest.Side, proto int)) {
	t.Helper()
	for proto := 2; proto <= 3; proto++ {
		t.Run("RESP"+strconv.Itoa(proto), func(t *testing.T) {
			b.compare(t, b.Proxy, func(s *proxytest.Side) { script(s, proto) })
		})
	}
}

// plainAndTLS runs a test of what event loops do for plain clients, and goroutines for those that speak TLS. dial connects
// to a proxy that listens for both.
func plainAndTLS(t *testing.T, test func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client)) {
	t.Run("plain", func(t *testing.T) {
		test(t, func(srv *proxytest.Proxy) *proxytest.Client { return srv.Dial(t) })
	})
	t.Run("TLS", func(t *testing.T) {
		test(t, func(srv *proxytest.Proxy) *proxytest.Client { return dialTLS(t, srv) })
	})
}

// tlsAddr is where clients of a proxy that listens for TLS, too, connect with TLS.
func tlsAddr(srv *proxytest.Proxy) string { return srv.Addrs()[1].String() }

// dialTLS connects a client there.
func dialTLS(t *testing.T, srv *proxytest.Proxy) *proxytest.Client {
	t.Helper()
	return proxytest.Dial(t, "tls:"+tlsAddr(srv))
}

// infoOf is a field of INFO lockproxy.
func infoOf(t *testing.T, addr, field string) string {
	t.Helper()
	v := decode(t, ask(t, addr, "INFO lockproxy"))
	for line := range strings.SplitSeq(string(v.Str), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	t.Fatalf("INFO lockproxy has no %s: %s", field, v.Str)
	return ""
}

// field is the text of one field of a map.
func field(v resp.Value, name string) string { return string(v.Field(name).Str) }

// ask sends commands one by one on a connection of their own and returns the last reply.
func ask(t *testing.T, addr string, commands ...string) (reply string) {
	t.Helper()
	c := proxytest.Dial(t, addr)
	defer c.Conn.Close()
	for _, command := range commands {
		reply = c.Ask(command)
	}
	return reply
}

func decode(t *testing.T, reply string) resp.Value {
	t.Helper()
	v, n, err := resp.Decode([]byte(reply))
	if err != nil || n != len(reply) {
		t.Fatalf("reply %.200q: %v", reply, err)
	}
	return v
}
