package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
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
	stop  func()       // ends the proxy, not the admin server
	stuck sync.RWMutex // locked: the proxy does not answer
}

func (s *stand) whileStuck() {
	s.stuck.RLock()
	defer s.stuck.RUnlock()
}

func newStand(t *testing.T, change ...func(*Options)) *stand {
	t.Helper()
	return newStandOf(t, redistest.Start(t), upstream.Options{}, change...)
}

// newStandOf has a proxy that is somebody at this Redis.
func newStandOf(t *testing.T, redis *redistest.Server, up upstream.Options, change ...func(*Options)) *stand {
	t.Helper()
	up.Addr, up.DialTimeout, up.MaxLanes = redis.Addr(), 3*time.Second, 256
	up.Pins = upstream.PinLimits{Max: 1000, Wait: time.Second, MaxLogins: 16, LoginWait: time.Second}
	ends := func() map[string]time.Time { return map[string]time.Time{"clients": time.Unix(1795339455, 0)} }
	s := &stand{t: t, redis: redis, http: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}}
	var err error
	s.proxy, err = proxy.New(proxy.Options{
		Listen: []string{"127.0.0.1:0"}, Upstream: up, Version: "1.2.3", Revision: "0123abc", Certificates: ends,
		DrainTimeout: time.Millisecond, Logger: zap.NewNop(),
		ClientAuth: proxy.AuthUpstream, ProxyProtocol: proxy.ProxyOff,
		Limits: proxy.Limits{
			Clients: 1000, Memory: 1 << 30, Query: 1 << 30, Unanswered: 1 << 30, Output: 1 << 30, LargeCommand: time.Minute, Handshake: time.Minute,
			PubSub: proxy.PubSub{Hard: 1 << 30, Soft: 1 << 30, SoftTime: time.Minute},
		},
		Locks: proxy.Locks{Lease: 30 * time.Second}, MaxEngines: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Listen: ":0", Proxy: s.proxy, Logger: zap.NewNop()}
	for _, f := range change {
		f(&opts)
	}
	if s.admin, err = New(opts); err != nil {
		t.Fatal(err)
	}
	stats := s.admin.numbers.stats
	s.admin.numbers.stats = func() metrics.Stats { s.whileStuck(); return stats() }
	each := s.admin.view.EachLock
	s.admin.view.EachLock = func(f func(proxy.SeenLock)) { s.whileStuck(); each(f) }
	stopAdmin := start(t, func(ctx context.Context) {
		if err := s.admin.Run(ctx); err != nil {
			t.Error(err)
		}
	})
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

func start(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
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

// client is one that has sent these commands; see redistest.Talk.
func (s *stand) client(commands ...string) net.Conn {
	s.t.Helper()
	return redistest.Talk(s.t, s.proxy.Addrs()[0].String(), commands...)
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
	t.Parallel()
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
		`lockproxy_build_info{goversion="` + runtime.Version() + `",revision="0123abc",version="1.2.3"}`: "1",
		`lockproxy_certificate_not_after_timestamp_seconds{side="clients"}`:                              "1.795339455e+09",
		`lockproxy_limit{setting="max_clients"}`:                                                         "1000",
		`lockproxy_upstream_up`:                                                                          "1",
		`lockproxy_clients`:                                                                              "2",
		`lockproxy_connections_total`:                                                                    "3",
		`lockproxy_clients_closed_total{reason="protocol_error"}`:                                        "1",
		`lockproxy_clients_closed_total{reason="output_limit"}`:                                          "0",
		`lockproxy_pins{state="used"}`:                                                                   "1",
		`lockproxy_pins_by_command{command="multi"}`:                                                     "1",
		`lockproxy_pin_timeouts_total`:                                                                   "0",
		`lockproxy_logins_failed_total`:                                                                  "1",
		`lockproxy_locks_held{mode="exclusive"}`:                                                         "1",
		`lockproxy_locks_held{mode="shared"}`:                                                            "0",
		`lockproxy_lock_wait_seconds_count{verb="lock"}`:                                                 "1",
		`lockproxy_lock_wait_seconds_count{verb="trylock"}`:                                              "1",
		`lockproxy_lock_wait_seconds_bucket{verb="fairlock",le="+Inf"}`:                                  "0",
		`lockproxy_locks_lost_total{reason="gone"}`:                                                      "0",
		`lockproxy_locks_lost_total{reason="forced"}`:                                                    "0",
		`lockproxy_locks_lost_total{reason="max_hold"}`:                                                  "0",
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
	t.Parallel()
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
	t.Parallel()
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

func TestProfilesAreServedIfEnabledAndNothingElse(t *testing.T) {
	profiles := []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/symbol", "/debug/pprof/trace?seconds=0.01"}
	never := []string{"/debug/pprof/cmdline", "/debug/pprof/nosuch", "/debug/vars", "/other"}
	s := newStand(t)
	for _, path := range append(profiles, never...) {
		if status, _ := s.get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d although profiles are off", path, status)
		}
	}
	s = newStand(t, func(o *Options) { o.Pprof = true })
	for _, path := range profiles {
		if status, _ := s.get(path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, path := range never { // the command line may hold a password
		if status, _ := s.get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
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
	t.Parallel()
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

// A page on the web can make its visitor's browser ask the address that its own name has been made to lead to.
func TestOnlyKnownHostsAreAnswered(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for host, page := range map[string]int{"localhost": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		for path, want := range map[string]int{
			"/": page, "/page.js": page, "/locks": page, "/clients": page, "/hot": page,
			"/metrics": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK,
		} {
			request, err := http.NewRequest(http.MethodGet, "http://"+s.admin.Addr().String()+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = host
			answer, err := s.http.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s of %s: %d, want %d", path, host, answer.StatusCode, want)
			}
		}
	}
}

// A proxy that hangs is what operators want to look at.
func TestAnswersComeWhileTheProxyHangs(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.metric("lockproxy_stats_age_seconds") // so that there are numbers to show
	s.stuck.Lock()
	begin := time.Now()
	for range 2 {
		for path, want := range map[string]string{
			"/metrics": "lockproxy_clients ", "/": "<!DOCTYPE html>", "/readyz": "ok", "/healthz": "ok",
		} {
			if status, body := s.get(path); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
	if status, _ := s.get("/locks"); status != http.StatusServiceUnavailable {
		t.Errorf("/locks: %d", status)
	}
	if age, _ := strconv.ParseFloat(s.metric("lockproxy_stats_age_seconds"), 64); age <= 0 {
		t.Errorf("what is shown is said to be %v seconds old", age)
	}
	if took := time.Since(begin); took > 30*time.Second { // some of them wait for half a second, one for three seconds
		t.Errorf("it took %s", took)
	}
	s.stuck.Unlock()
	redistest.Eventually(t, 10*time.Second, "fresh numbers", func() bool { return s.metric("lockproxy_stats_age_seconds") == "0" })
}

func TestReadyMeansThatRedisTakesWrites(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	demand := func(want int, word string) {
		t.Helper()
		begin := time.Now()
		status, body := s.get("/readyz")
		if status != want || !strings.Contains(body, word) {
			t.Errorf("%d %s, want %d with %s", status, body, want, word)
		}
		if took := time.Since(begin); took > 3*time.Second { // less than one on a machine that has time
			t.Errorf("the answer took %s", took)
		}
	}
	demand(http.StatusOK, "ok")
	s.redis.Do(t, "REPLICAOF", "127.0.0.1", "1")
	demand(http.StatusServiceUnavailable, "READONLY")
	s.redis.Do(t, "CONFIG", "SET", "replica-serve-stale-data", "no")
	demand(http.StatusServiceUnavailable, "MASTERDOWN")
	s.redis.Do(t, "REPLICAOF", "NO", "ONE")
	demand(http.StatusOK, "ok")
	s.redis.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	demand(http.StatusServiceUnavailable, "NOREPLICAS")
	s.redis.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	demand(http.StatusOK, "ok")
	s.redis.Pause()
	demand(http.StatusServiceUnavailable, "not answered")
	demand(http.StatusServiceUnavailable, "not answered")
	s.redis.Continue()
	demand(http.StatusOK, "ok")
}

// The proxy's own user may be one that may do next to nothing.
func TestReadyWithoutTheRightToWrite(t *testing.T) {
	redis := redistest.Start(t)
	for user, rights := range map[string][]any{"pings": {"-@all", "+ping"}, "asks": {"-@all", "+ping", "+role"}, "reads": {"~a:*", "+@all"}} {
		redis.Do(t, append([]any{"ACL", "SETUSER", user, "on", ">pw"}, rights...)...)
		s := newStandOf(t, redis, upstream.Options{User: user, Password: "pw"})
		if status, body := s.get("/readyz"); status != http.StatusOK {
			t.Errorf("%s: %d %s", user, status, body)
		}
		if user == "pings" {
			continue // it cannot know
		}
		redis.Do(t, "REPLICAOF", "127.0.0.1", "1")
		if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable {
			t.Errorf("%s: of a replica %d %s", user, status, body)
		}
		redis.Do(t, "REPLICAOF", "NO", "ONE")
	}
}

// Whoever holds connections open does not keep others out.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var silent []net.Conn
	for range connectionLimit + 20 {
		nc, err := net.Dial("tcp", s.admin.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		silent = append(silent, nc)
	}
	s.http.CloseIdleConnections()
	if status, _ := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	closed := 0
	for _, nc := range silent[:20] {
		_ = nc.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := nc.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			closed++
		}
	}
	if closed != 20 {
		t.Errorf("%d of the 20 oldest connections beyond the limit were closed", closed)
	}
}
