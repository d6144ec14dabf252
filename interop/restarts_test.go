//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// restartClaims are what clients of two proxies behind HAProxy prove while the proxies are restarted one after the other.
var restartClaims = []string{
	"plain",  // clients without locks see no error, and each command of theirs is executed once
	"tasks",  // tasks that name an OWNER take turns: no lock is lost, and none is held by two
	"holder", // a client that names an OWNER keeps its lock for longer than any of the proxies lives
}

// restartedFlags make a drain short: the holder does not release its lock, so each drain lasts until drain.timeout.
var restartedFlags = []string{"--lock-lease", "5s", "--drain-delay", "1s", "--drain-timeout", "1s"}

func TestRollingRestarts(t *testing.T) {
	balancer := startHAProxy(t, redistest.Start(t))
	interpreter := python(t)

	cmd := exec.Command(interpreter, abs(t, "python", "restarts.py"))
	cmd.Env = append(os.Environ(), "LOCKPROXY_URL=redis://"+balancer.addr, "BEHIND_URL=redis://"+balancer.redis.Addr())
	input, err := cmd.StdinPipe() // its end tells the program to end
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var clients sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(over)
		_ = input.Close()
		clients.Wait()
	})
	defer stop()
	clients.Go(func() {
		t.Run("redis-py", func(t *testing.T) { runClaims(t, restartClaims, cmd) })
	})
	inProcess := newRestarted(t, balancer)
	inProcess.run(&clients, over)

	for _, p := range []*restartable{balancer.a, balancer.b, balancer.a, balancer.b} {
		p.restart(t, balancer.redis.Addr())
	}
	stop()
	inProcess.verify(t, balancer.redis.Addr())
}

// balancer is HAProxy in front of two proxies.
type balancer struct {
	addr  string
	redis *redistest.Server
	a, b  *restartable
}

// startHAProxy runs the example of a configuration, with the addresses of this test.
func startHAProxy(t *testing.T, redis *redistest.Server) *balancer {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/haproxy"); err != nil {
			missing(t, "there is no haproxy here")
		}
	}
	x := &balancer{addr: freeAddr(t), redis: redis, a: newRestartable(t, redis.Addr()), b: newRestartable(t, redis.Addr())}
	text, err := os.ReadFile(filepath.Join(root, "configs", "haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for before, after := range map[string]string{
		"bind :7379":                       "bind " + x.addr,
		"server a 10.0.0.1:7379 port 9121": x.a.server("a"),
		"server b 10.0.0.2:7379 port 9121": x.b.server("b"),
	} {
		if strings.Count(config, before) != 1 {
			t.Fatalf("the example does not have one %q", before)
		}
		config = strings.Replace(config, before, after, 1)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-db", "-f", file)
	log, err := os.Create(filepath.Join(dir, "haproxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("end of HAProxy's log:\n%s", tail(log.Name()))
		}
	})
	redistest.Eventually(t, 10*time.Second, "HAProxy", func() bool { return strings.HasPrefix(ask(x.addr, "PING"), "+PONG") })
	return x
}

// restartable is a proxy that keeps its addresses when it is restarted.
type restartable struct {
	addr, admin string
	*process
}

func newRestartable(t *testing.T, upstream string) *restartable {
	t.Helper()
	p := &restartable{addr: freeAddr(t), admin: freeAddr(t)}
	p.start(t, upstream)
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *restartable) start(t *testing.T, upstream string) {
	t.Helper()
	p.process = launch(t, p.addr, upstream, append(restartedFlags, "--admin-listen", p.admin)...)
}

// server is the proxy's line in HAProxy's configuration.
func (p *restartable) server(name string) string {
	_, port, _ := net.SplitHostPort(p.admin)
	return fmt.Sprintf("server %s %s port %s", name, p.addr, port)
}

// restart ends the proxy, and starts it again at the same addresses.
func (p *restartable) restart(t *testing.T, upstream string) {
	t.Helper()
	p.end(t)
	var last struct {
		Message string `json:"msg"`
		Cut     int    `json:"clients_cut"`
		Locks   int    `json:"locks_left"`
	}
	lines := strings.Split(tail(p.log), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Message != "stopped" {
		t.Errorf("the last entry of the log: %v %+v", err, last)
	}
	if last.Cut > 2 || last.Locks > 2 { // the holders
		t.Errorf("%d clients were cut off, %d locks were left", last.Cut, last.Locks)
	}
	p.start(t, upstream)
	redistest.Eventually(t, 10*time.Second, "the proxy to be ready", func() bool {
		return strings.HasPrefix(ask(p.admin, "GET /readyz HTTP/1.0\r\n"), "HTTP/1.0 200")
	})
}

// restarted are clients of go-redis, in this process.
type restarted struct {
	ctx           context.Context
	pool, holders *redis.Client
	inside        atomic.Int32 // tasks that have the lock
	done          [2]atomic.Int64
	failures      [3]failures // by claim
}

// failures are the first errors of a claim, and their number.
type failures struct {
	mu    sync.Mutex
	first []string
	count int
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; f.count <= 5 {
		f.first = append(f.first, fmt.Sprintf(format, args...))
	}
}

func newRestarted(t *testing.T, x *balancer) *restarted {
	t.Helper()
	url := "redis://" + x.addr
	// The holder has to learn that its connection has ended, so its commands are not repeated on another one.
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opts.MaxRetries = -1
	holders := redis.NewClient(opts)
	t.Cleanup(func() { _ = holders.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), programLimit/2)
	t.Cleanup(cancel)
	return &restarted{ctx: ctx, pool: goRedis(t, url), holders: holders}
}

func (r *restarted) run(clients *sync.WaitGroup, over <-chan struct{}) {
	for i := range 3 {
		clients.Go(func() { until(over, time.Millisecond, func() { r.plain(i) }) })
		clients.Go(func() { until(over, time.Millisecond, func() { r.task(fmt.Sprint("task-", i)) }) })
	}
	clients.Go(func() { r.hold(over) })
}

// until calls do again and again, with a pause, until over is closed.
func until(over <-chan struct{}, pause time.Duration, do func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
			do()
		}
	}
}

// plain sends commands without locks, with the library's defaults.
func (r *restarted) plain(i int) {
	ctx, key := r.ctx, fmt.Sprint("go-plain-", i)
	if _, err := r.pool.Incr(ctx, "go-count").Result(); err != nil {
		r.failures[0].add("INCR: %v", err)
	}
	pipe := r.pool.Pipeline()
	for range 5 {
		pipe.Incr(ctx, "go-count")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		r.failures[0].add("pipeline: %v", err)
	}
	transaction := func() (string, error) {
		tx := r.pool.TxPipeline()
		tx.Set(ctx, key, "v", 0)
		got := tx.Get(ctx, key)
		_, err := tx.Exec(ctx)
		return got.Val(), err
	}
	got, err := transaction()
	if errors.Is(err, io.EOF) { // it crossed the end of a silent connection; the library repeats commands and pipelines then, but no transactions
		got, err = transaction()
	}
	if err != nil || got != "v" {
		r.failures[0].add("MULTI: %v, %q", err, got)
	}
	r.done[0].Add(6)
}

// task takes the lock on a connection of its own, works, and releases the lock. If its connection ends it does the same on the next one.
func (r *restarted) task(owner string) {
	conn := r.holders.Conn()
	defer func() { _ = conn.Close() }()
	again := func(words ...any) (any, error) {
		for {
			v, err := conn.Do(r.ctx, words...).Result()
			if err == nil || !moved(err) || r.ctx.Err() != nil {
				return v, err
			}
			_ = conn.Close()
			conn = r.holders.Conn()
		}
	}
	if _, err := again("LOCK", "go-task", "OWNER", owner); err != nil {
		r.failures[1].add("LOCK: %v", err)
		return
	}
	if n := r.inside.Add(1); n != 1 {
		r.failures[1].add("%d tasks hold the lock", n)
	}
	if _, err := again("GET", "go-task-data"); err != nil && !errors.Is(err, redis.Nil) {
		r.failures[1].add("GET: %v", err)
	}
	r.inside.Add(-1)
	for { // an acquire without an answer is a hold too
		v, err := again("UNLOCK", "go-task", "OWNER", owner)
		if err != nil {
			r.failures[1].add("UNLOCK: %v", err)
		}
		if err != nil || v == int64(1) {
			break
		}
	}
	r.done[1].Add(1)
}

// hold keeps one lock until over is closed.
func (r *restarted) hold(over <-chan struct{}) {
	ctx, conn := r.ctx, r.holders.Conn()
	defer func() { _ = conn.Close() }()
	var fence any
	acquire := func() {
		v, err := conn.Do(ctx, "LOCK", "go-held", "OWNER", "holder", "WAIT", "0").Result()
		if err != nil && moved(err) {
			return // the next command says so too
		}
		if fence == nil {
			fence = v
		}
		if err != nil || v != fence {
			r.failures[2].add("acquired: %v, %v; the fence was %v", v, err, fence)
		}
	}
	acquire()
	until(over, 5*time.Millisecond, func() {
		err := conn.Ping(ctx).Err()
		if v, err := r.pool.Do(ctx, "TRYLOCK", "go-held", "OWNER", "rival").Result(); !errors.Is(err, redis.Nil) {
			r.failures[2].add("another owner: %v, %v", v, err)
		}
		if err != nil {
			_ = conn.Close()
			conn = r.holders.Conn()
			acquire()
		}
	})
	for { // each acquire is a hold
		v, err := conn.Do(ctx, "UNLOCK", "go-held", "OWNER", "holder").Result()
		if err != nil {
			r.failures[2].add("UNLOCK: %v", err)
		}
		if err != nil || v == int64(1) {
			return
		}
	}
}

// moved reports whether the error tells a client to connect again.
func moved(err error) bool {
	var reply redis.Error
	return !errors.As(err, &reply) || strings.HasPrefix(err.Error(), "OVERLOADED the proxy is shutting down")
}

// verify reports the claims, once all clients have ended.
func (r *restarted) verify(t *testing.T, redisAddr string) {
	direct := goRedis(t, "redis://"+redisAddr)
	if n, err := direct.Get(t.Context(), "go-count").Int64(); err != nil || n != r.done[0].Load() {
		r.failures[0].add("%d commands were executed, %d answered, %v", n, r.done[0].Load(), err)
	}
	for i := range r.done {
		if n := r.done[i].Load(); n < 100 {
			r.failures[i].add("done only %d times", n)
		}
	}
	t.Logf("go-redis: %d commands, %d turns", r.done[0].Load(), r.done[1].Load())
	for i, claim := range restartClaims {
		t.Run("go-redis/"+claim, func(t *testing.T) {
			if f := &r.failures[i]; f.count > 0 {
				t.Errorf("%d failures: %s", f.count, strings.Join(f.first, "\n"))
			}
		})
	}
}
