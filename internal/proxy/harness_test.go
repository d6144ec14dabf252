package proxy

import (
	"bytes"
	gocmp "cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

func TestMain(m *testing.M) {
	ants.Release()                     // the pool that importing ants starts
	_ = flag.Set("rapid.checks", "40") // each takes a tenth of a second; the command line may say more
	_ = flag.Set("test.parallel", "4") // parallel tests wait for timeouts, failovers and the like
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// inTime measures up to three times how long something takes. One time within the limit is enough: the machine may stand still for a moment.
func inTime(t testing.TB, what string, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 3 {
		took := measure()
		if took <= limit {
			return
		}
		all = append(all, took)
	}
	t.Errorf("%s takes more than %v each time: %v", what, limit, all)
}

// standstill asks a server directly until the test ends. longest is the longest time for which the machine, or the server, has stood still.
func standstill(t testing.TB, server *redistest.Server) (longest func() time.Duration) {
	t.Helper()
	c := server.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	var most, last atomic.Int64
	last.Store(time.Now().UnixNano())
	longest = func() time.Duration { return time.Duration(max(most.Load(), time.Now().UnixNano()-last.Load())) }
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_ = c.Ping(ctx).Err() // Sentinels close connections
			most.Store(int64(longest()))
			last.Store(time.Now().UnixNano())
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
	return longest
}

// Finish fills in the options that a test leaves open.
func Finish(o *Options) {
	orElse(&o.Engine, EngineAuto)
	orElse(&o.ClientAuth, AuthUpstream)
	orElse(&o.CrossSlot, CrossSplit)
	orElse(&o.ProxyProtocol, ProxyOff)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	orElse(&o.DrainTimeout, 10*time.Second)
	orElse(&o.MaxEngines, 256)
	orElse(&o.Locks.Lease, 30*time.Second)
	orElse(&o.Locks.MaxWaiters, 100_000)
	orElse(&o.Upstream.DialTimeout, 3*time.Second)
	orElse(&o.Upstream.FailoverWait, time.Second)
	orElse(&o.Upstream.MaxLanes, 256)
	orElse(&o.Upstream.Pins.Max, 1000)
	orElse(&o.Upstream.Pins.Wait, time.Second)
	orElse(&o.Upstream.Pins.MaxLogins, 16)
	orElse(&o.Upstream.Pins.LoginWait, patience)
	l := &o.Limits
	orElse(&l.Clients, 10_000)
	for _, bytes := range []*int{&l.Memory, &l.Query, &l.Output, &l.PubSub.Hard, &l.PubSub.Soft} {
		orElse(bytes, 1<<30)
	}
	orElse(&l.Unanswered, 64<<20)
	orElse(&l.PubSub.SoftTime, time.Minute)
	orElse(&l.LargeCommand, patience)
	orElse(&l.Handshake, patience)
}

func orElse[T comparable](v *T, other T) { *v = gocmp.Or(*v, other) }

// startProxy runs a Server in front of redis until the test ends. change may adjust its options.
func startProxy(t testing.TB, redis *redistest.Server, change ...func(*Options)) *Server {
	t.Helper()
	opts := Options{
		Listen:       []string{"127.0.0.1:0"},
		Upstream:     upstream.Options{Addr: redis.Addr()},
		DrainTimeout: 50 * time.Millisecond,
	}
	for _, f := range change {
		f(&opts)
	}
	Finish(&opts)
	srv, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if n := srv.shared.Counters.Panics.Load(); n > 0 {
			t.Errorf("%d panics in sessions", n)
		}
	})
	redistest.Eventually(t, patience, "the proxy to be ready", func() bool {
		ready, _ := srv.Ready()
		return ready
	})
	return srv
}

// bench is a Redis with proxies in front of it, one for each engine: the same bytes sent to any of them must be answered by
// the same bytes. It is one Redis, because the order of its hash tables differs from process to process.
type bench struct {
	redis   *redistest.Server
	proxies map[string]*Server
}

func newBench(t testing.TB, redisArgs ...string) *bench {
	t.Helper()
	redisArgs = append([]string{"--slowlog-log-slower-than", "-1"}, redisArgs...) // what is slow is chance
	b := &bench{redis: redistest.Start(t, redisArgs...), proxies: map[string]*Server{}}
	for _, engine := range engineNames() {
		b.proxies[engine] = startProxy(t, b.redis, func(o *Options) { o.Engine = engine })
	}
	return b
}

func engineNames() []string {
	if runtime.GOOS == "linux" {
		return []string{EngineGoroutine, EngineEpoll}
	}
	return []string{EngineGoroutine}
}

// perEngine runs a test for each engine at the same time, each with a Redis of its own.
func perEngine(t *testing.T, test func(t *testing.T, redis *redistest.Server, engine string), redisArgs ...string) {
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, redistest.Start(t, redisArgs...), engine)
		})
	}
}

// eachEngine is perEngine with a proxy.
func eachEngine(t *testing.T, test func(t *testing.T, redis *redistest.Server, srv *Server), redisArgs ...string) {
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		test(t, redis, startProxy(t, redis, func(o *Options) { o.Engine = engine }))
	}, redisArgs...)
}

// proxied is the address of one of the proxies.
func (b *bench) proxied() string { return address(b.proxies[EngineGoroutine]) }

func address(srv *Server) string { return srv.Addrs()[0].String() }

// clean makes Redis what it was at the start.
func (b *bench) clean(t testing.TB) {
	t.Helper()
	for _, cmd := range [][]any{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"}, {"CONFIG", "RESETSTAT"}, {"SLOWLOG", "RESET"}} {
		b.redis.Do(t, cmd...)
	}
}

// compare runs a script on a direct connection and through each proxy and compares what the clients got.
func (b *bench) compare(t *testing.T, script func(s *side)) {
	t.Helper()
	direct := b.run(t, "direct", b.redis.Addr(), script)
	if slices.ContainsFunc(direct, func(line string) bool { return strings.HasSuffix(line, errTimeout.Error()) }) {
		t.Fatalf("the script expects more than Redis sends:\n%s", strings.Join(direct, "\n"))
	}
	for engine, srv := range b.proxies {
		if diff := cmp.Diff(direct, b.run(t, engine, address(srv), script)); diff != "" {
			t.Errorf("replies differ (-direct +%s):\n%s", engine, diff)
		}
	}
}

func (b *bench) run(t *testing.T, title, addr string, script func(s *side)) []string {
	t.Helper()
	b.clean(t)
	redistest.Eventually(t, patience, "the clients of the last run to be gone", func() bool {
		info, _ := b.redis.Do(t, "INFO").(string)
		return strings.Contains(info, "\npubsub_channels:0\r") && strings.Contains(info, "\npubsub_patterns:0\r") && strings.Contains(info, "\nblocked_clients:0\r")
	})
	s := &side{t: t, redis: b.redis, addr: addr, title: title}
	script(s)
	s.close()
	return s.transcript
}

// both runs the script in RESP2 and in RESP3.
func (b *bench) both(t *testing.T, script func(s *side, proto int)) {
	t.Helper()
	for proto := 2; proto <= 3; proto++ {
		t.Run("RESP"+strconv.Itoa(proto), func(t *testing.T) {
			b.compare(t, func(s *side) { script(s, proto) })
		})
	}
}

// side is one run of a script: its clients are all connected to the same place.
type side struct {
	t          *testing.T
	redis      *redistest.Server // the server behind it
	addr       string
	title      string
	clients    []*peer
	transcript []string
	masks      []mask
	ignored    *regexp.Regexp // frames that come or not, by chance; nil: none
}

// mask hides what differs by nature, as listed in docs/DIVERGENCE.md.
type mask struct {
	pattern *regexp.Regexp
	with    string
}

// hide replaces every match of pattern in what is noted from now on.
func (s *side) hide(pattern, with string) {
	s.masks = append(s.masks, mask{regexp.MustCompile(pattern), with})
}

// hideHelloID hides the connection id in the answer to HELLO.
func (s *side) hideHelloID() { s.hide(`\$2\r\nid\r\n:\d+`, "$$2\r\nid\r\n:ID") }

func (s *side) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.transcript = append(s.transcript, line)
}

func (s *side) close() {
	for _, c := range s.clients {
		_ = c.nc.Close()
	}
}

// client connects a client with a label for the transcript.
func (s *side) client(label string) *peer {
	s.t.Helper()
	c := dialClient(s.t, s.addr)
	c.label, c.side = label, s
	s.clients = append(s.clients, c)
	return c
}

// speaking connects a client that has switched to the protocol version.
func (s *side) speaking(label string, proto int) *peer {
	s.t.Helper()
	c := s.client(label)
	if proto == 3 {
		c.quiet("HELLO", "3")
	}
	return c
}

// awaitBlocked waits until n clients are blocked in Redis.
func (s *side) awaitBlocked(n int) {
	s.t.Helper()
	redistest.Eventually(s.t, patience, fmt.Sprintf("%d blocked clients (%s)", n, s.title), func() bool {
		info, _ := s.redis.Do(s.t, "INFO", "clients").(string)
		return strings.Contains(info, "blocked_clients:"+strconv.Itoa(n)+"\r\n")
	})
}

// peer is one client connection of a test.
type peer struct {
	t     testing.TB
	nc    net.Conn
	label string
	side  *side // nil: nothing is noted
	buf   []byte
	scan  resp.Scanner
}

func dialClient(t testing.TB, addr string) *peer {
	t.Helper()
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t: t, nc: nc}
}

// raw sends bytes as they are.
func (c *peer) raw(b string) {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, b); err != nil && c.side == nil {
		c.t.Fatalf("%s: write: %v", c.label, err)
	}
}

// send sends one command.
func (c *peer) send(args ...string) {
	c.t.Helper()
	c.raw(string(resp.AppendCommand(nil, args...)))
}

var errTimeout = errors.New("nothing came")

// frame reads one whole frame.
func (c *peer) frame() (string, error) {
	for end := 0; ; {
		n, whole, err := c.scan.Scan(c.buf[end:])
		if err != nil {
			return "", fmt.Errorf("%w in %q", err, c.buf)
		}
		if end += n; whole {
			b := string(c.buf[:end])
			c.buf, end = c.buf[end:], 0
			if c.side != nil && c.side.ignored != nil && c.side.ignored.MatchString(b) {
				continue
			}
			return b, nil
		}
		if err := c.more(); err != nil {
			part := string(c.buf)
			c.buf = nil
			c.scan.Reset()
			return part, err
		}
	}
}

// lateFrame is frame for one that may take several times as long to begin as others.
func (c *peer) lateFrame() (b string, err error) {
	for range 6 {
		if b, err = c.frame(); !errors.Is(err, errTimeout) || b != "" {
			break
		}
	}
	return b, err
}

func (c *peer) more() error {
	_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	chunk := make([]byte, 64<<10)
	n, err := c.nc.Read(chunk)
	c.buf = append(c.buf, chunk[:n]...)
	var timeout net.Error
	switch {
	case n > 0:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	}
	return io.EOF // how a connection ends, FIN or RST, is not compared
}

// expect notes n frames.
func (c *peer) expect(n int) {
	c.t.Helper()
	for range n {
		b, err := c.frame()
		c.note(b, err)
		if err != nil {
			return
		}
	}
}

func (c *peer) note(b string, err error) {
	c.t.Helper()
	if c.side == nil {
		if err != nil {
			c.t.Fatalf("%s: %q, %v", c.label, b, err)
		}
		return
	}
	for _, m := range c.side.masks {
		b = m.pattern.ReplaceAllString(b, m.with)
	}
	if err != nil {
		c.side.note("%s: %q, then %v", c.label, b, err)
		return
	}
	c.side.note("%s: %q", c.label, b)
}

// do sends one command and notes one frame.
func (c *peer) do(args ...string) string {
	c.t.Helper()
	c.send(args...)
	b, err := c.frame()
	c.note(b, err)
	return b
}

// quiet sends one command and returns its reply without a note.
func (c *peer) quiet(args ...string) string {
	c.t.Helper()
	c.send(args...)
	b, err := c.frame()
	if err != nil {
		c.t.Fatalf("%s: %q: %q, %v", c.label, args, b, err)
	}
	return b
}

// granted acquires a lock for a short time. On a machine that stands still, that time may be over before the grant comes, and it is acquired anew.
func (c *peer) granted(args ...string) {
	c.t.Helper()
	redistest.Eventually(c.t, patience, "a grant that comes in time", func() bool { return c.quiet(args...)[0] == ':' })
}

// until notes frames up to one that contains word.
func (c *peer) until(word string) {
	c.t.Helper()
	for {
		b, err := c.frame()
		c.note(b, err)
		if err != nil || strings.Contains(b, word) {
			return
		}
	}
}

// sync proves that nothing else has come: it notes everything up to the echo of a word.
func (c *peer) sync() {
	c.t.Helper()
	c.send("PING", "in-sync")
	c.until("in-sync")
}

// end notes everything up to the end of the connection.
func (c *peer) end() {
	c.t.Helper()
	for {
		b, err := c.frame()
		c.note(b, err)
		if err != nil {
			return
		}
	}
}

// halfClose says that nothing more will be sent.
func (c *peer) halfClose() {
	c.t.Helper()
	_ = c.nc.(interface{ CloseWrite() error }).CloseWrite() // the other side may have closed already
}

// integer reads the number in an integer reply.
func integer(t testing.TB, reply string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(reply, ":"), "\r\n"))
	if err != nil {
		t.Fatalf("%q is not an integer reply", reply)
	}
	return n
}

// inline joins lines as a telnet user would type them.
func inline(lines ...string) string {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\r\n")
	}
	return b.String()
}
