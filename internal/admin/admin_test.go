package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"

	"lockproxy/internal/proxy"
	"lockproxy/internal/redistest"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

func TestMain(m *testing.M) {
	ants.Release() // the pool that importing ants starts
	goleak.VerifyTestMain(m)
}

// stand is a proxy with its admin server.
type stand struct {
	t     *testing.T
	redis *redistest.Server
	proxy *proxy.Server
	admin *Server
	http  *http.Client
	stop  func() // ends the proxy, not the admin server
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{t: t, redis: redistest.Start(t), http: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}}
	var err error
	s.proxy, err = proxy.New(proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: s.redis.Addr()}, Version: "1.2.3", DrainTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if s.admin, err = New(Options{Listen: ":0", Proxy: s.proxy}); err != nil {
		t.Fatal(err)
	}
	stopAdmin := start(t, s.admin.Run)
	s.stop = start(t, s.proxy.Run)
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		s.stop()
		stopAdmin()
	})
	redistest.Eventually(t, 10*time.Second, "the proxy to find Redis", func() bool {
		ready, _ := s.proxy.Ready()
		return ready
	})
	return s
}

func start(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (s *stand) get(path string) (status int, body string) {
	s.t.Helper()
	answer, err := s.http.Get("http://" + s.admin.Addr().String() + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// client sends commands one by one and reads one line of each reply.
func (s *stand) client(commands ...string) net.Conn {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.proxy.Addrs()[0].String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(nc)
	for _, c := range commands {
		if _, err := nc.Write(resp.AppendCommand(nil, strings.Fields(c)...)); err != nil {
			s.t.Fatal(err)
		}
		if _, err := in.ReadString('\n'); err != nil {
			s.t.Fatalf("%s: %v", c, err)
		}
	}
	return nc
}

// metric is the value of one line of /metrics, or "" if there is none.
func (s *stand) metric(name string) string {
	s.t.Helper()
	_, body := s.get("/metrics")
	for line := range strings.SplitSeq(body, "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return value
		}
	}
	return ""
}

func TestMetricsSayWhatHappens(t *testing.T) {
	s := newStand(t)
	holder := s.client("LOCK k", "TRYLOCK j PX 60000", "UNLOCK j", "MULTI")
	waiter := s.client()
	if _, err := waiter.Write(resp.AppendCommand(nil, "LOCK", "k")); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the client to wait", func() bool { return s.metric("lockproxy_lock_waiters") == "1" })
	s.redis.Do(t, "ACL", "SETUSER", "somebody", "on", ">pw")
	bad := s.client("PING", "AUTH somebody wrong")
	if _, err := bad.Write([]byte("*x\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(bad)
	for name, want := range map[string]string{
		`lockproxy_build_info{version="1.2.3"}`:                         "1",
		`lockproxy_upstream_up`:                                         "1",
		`lockproxy_clients`:                                             "2",
		`lockproxy_connections_total`:                                   "3",
		`lockproxy_clients_closed_total{reason="protocol_error"}`:       "1",
		`lockproxy_clients_closed_total{reason="output_limit"}`:         "0",
		`lockproxy_commands_refused_total{code="NOUPSTREAM"}`:           "0",
		`lockproxy_pins{state="used"}`:                                  "1",
		`lockproxy_pins_by_command{command="multi"}`:                    "1",
		`lockproxy_pin_timeouts_total`:                                  "0",
		`lockproxy_logins_failed_total`:                                 "1",
		`lockproxy_locks_held`:                                          "1",
		`lockproxy_lock_wait_seconds_count{verb="lock"}`:                "1",
		`lockproxy_lock_wait_seconds_count{verb="trylock"}`:             "1",
		`lockproxy_lock_wait_seconds_bucket{verb="fairlock",le="+Inf"}`: "0",
		`lockproxy_locks_lost_total{reason="gone"}`:                     "0",
		`lockproxy_locks_lost_total{reason="forced"}`:                   "0",
	} {
		redistest.Eventually(t, 10*time.Second, fmt.Sprintf("%s to be %s", name, want), func() bool { return s.metric(name) == want })
	}
	// Each event loop has lanes of its own, and there were three clients.
	if lanes := s.metric("lockproxy_lanes"); lanes != "1" && lanes != "2" && lanes != "3" {
		t.Errorf("%s lanes", lanes)
	}
	if s.metric("go_goroutines") == "" || s.metric("process_open_fds") == "" {
		t.Error("no metrics of the runtime and the process")
	}

	s.redis.Do(t, "DEL", "k") // a loss that shows when the lock is given back
	_, _ = holder.Write(resp.AppendCommand(nil, "DISCARD"))
	_, _ = holder.Write(resp.AppendCommand(nil, "UNLOCK", "k"))
	redistest.Eventually(t, 20*time.Second, "the loss to be counted and the waiter to have the lock", func() bool {
		return s.metric(`lockproxy_locks_lost_total{reason="gone"}`) == "1" && s.metric(`lockproxy_lock_wait_seconds_count{verb="lock"}`) == "2"
	})
}

// Each series costs memory in whoever stores them, so no label may be what a client chooses.
func TestLabelsAreNotChosenByClients(t *testing.T) {
	s := newStand(t)
	s.client("NOSUCHCOMMAND x", "CLIENT SETNAME somebody", "SELECT 3", "MULTI")
	_, body := s.get("/metrics")
	for _, word := range []string{"nosuchcommand", "somebody", "127.0.0.1", "db3"} {
		if strings.Contains(strings.ToLower(body), word) {
			t.Errorf("/metrics has %q", word)
		}
	}
}

func TestReadyMeansThatRedisAnswersNow(t *testing.T) {
	s := newStand(t)
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("with Redis: %d %s", status, body)
	}
	s.redis.Stop() // nobody is connected, so the proxy has not noticed
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "refused") {
		t.Errorf("without Redis: %d %s", status, body)
	}
	if status, _ := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("healthz without Redis: %d", status)
	}
	s.redis.Restart()
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("with Redis again: %d %s", status, body)
	}
	s.stop()
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("a proxy that takes no clients: %d %s", status, body)
	}
}

func TestPageShowsClientsLanesPinsAndLocks(t *testing.T) {
	s := newStand(t)
	if status, body := s.get("/"); status != http.StatusOK || strings.Count(body, ">none<") != 4 {
		t.Errorf("of an idle proxy: %d %s", status, body)
	}
	nc := s.client("CLIENT SETNAME <script>", "LOCK a<b OWNER secret-owner", "MULTI")
	status, body := s.get("/")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	for _, want := range []string{nc.LocalAddr().String(), "&lt;script&gt;", "a&lt;b", "multi", "- db0 resp2", "Redis is up"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	for _, never := range []string{"<script>", "secret-owner"} {
		if strings.Contains(body, never) {
			t.Errorf("%q is on the page", never)
		}
	}
}

func TestProfilesAreServedAndNothingElse(t *testing.T) {
	s := newStand(t)
	for path, want := range map[string]int{
		"/debug/pprof/": http.StatusOK, "/debug/pprof/goroutine?debug=1": http.StatusOK, "/debug/pprof/cmdline": http.StatusOK, "/other": http.StatusNotFound,
	} {
		if status, _ := s.get(path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	answer, err := s.http.Post("http://"+s.admin.Addr().String()+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.StatusCode)
	}
}

func TestAddressWithoutHostIsLoopback(t *testing.T) {
	s := newStand(t)
	if ip := s.admin.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("listening on %s", ip)
	}
	if _, err := New(Options{Listen: "nonsense", Proxy: s.proxy}); err == nil {
		t.Error("no error for an address without a port")
	}
	if _, err := New(Options{Listen: s.admin.Addr().String(), Proxy: s.proxy}); err == nil {
		t.Error("no error for an address that is taken")
	}
}
