package locks

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// stand is one chaos experiment: Redis, two proxies, worker processes, the observer and a network.
type stand struct {
	t       *testing.T
	rng     *rand.Rand
	forgets bool // locks may be lost, and nobody knows which: the model and the order of waiters say nothing
	lease   time.Duration
	dir     string
	keys    []string

	net     network
	redis   *redistest.Server // the primary, if there are Sentinels
	admin   *redis.Client
	pair    *pair   // nil: there are no Sentinels
	shards  *shards // nil: it is no cluster
	proxies [2]*namedProxy
	reach   []string // the proxies as workers reach them
	watcher *observer

	netns   string // of the workers
	workers []*redistest.Process
	names   []string // of the latest process in each place
	started int

	incidents []incident
	stalls    *stalls
	failures  []string
}

// namedProxy can also be reached by a unix socket, whatever happens to the network.
type namedProxy struct {
	*proxy
	name   string
	socket string
}

// settings of an experiment.
type settings struct {
	seed       uint64
	namespaces bool
	volatile   bool // Redis persists nothing: a restart forgets all locks
	cluster    bool // there are three primaries with a replica each
	sentinels  bool // the primary has one replica and Sentinels, each in a namespace
	workers    int
	keys       int
	lease      time.Duration
}

// newStand starts everything. All ends with t.
func newStand(t *testing.T, set settings) *stand {
	t.Helper()
	s := &stand{t: t, rng: rand.New(rand.NewPCG(set.seed, 0)), lease: set.lease, forgets: set.volatile || set.sentinels}
	t.Cleanup(func() {
		if len(s.failures) > 0 {
			t.Logf("in short, below all logs:\n%s", strings.Join(s.failures, "\n"))
		}
	})
	var err error
	if s.dir, err = os.MkdirTemp("", "chaos"); err != nil { // t.TempDir is too long for a socket
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	for i := range set.keys {
		s.keys = append(s.keys, fmt.Sprint([]string{"lock", "shared", "limit"}[i%3], i))
	}
	// Persistence that loses nothing, so that a restart may not cost anybody a lock: Redis writes before it replies, and what a process has
	// written outlives it. Without fsync a slow disk does not stop Redis for a second.
	args := []string{"--appendonly", "yes", "--appendfsync", "no"}
	if set.volatile {
		args = nil
	}
	switch {
	case set.cluster:
		s.startCluster()
	case set.sentinels:
		s.startPair()
	case set.namespaces:
		s.startInNamespaces(args)
	default:
		s.startWithRelays(args, "")
	}
	for _, p := range s.proxies {
		s.restart(p)
	}
	for _, p := range s.proxies {
		redistest.Eventually(t, 2*patience, p.name+" to grant a lock", func() bool { return p.grants() })
	}
	s.stalls = watchStalls()
	t.Cleanup(s.stalls.stop)
	if s.redis != nil {
		s.admin = s.redis.Client(t)
	}
	s.watcher = observe(s.sight(), s.keys)
	t.Cleanup(s.watcher.stop)
	for i := range set.workers {
		s.workers, s.names = append(s.workers, nil), append(s.names, "")
		s.startWorker(i)
	}
	return s
}

// fail reports what a check has found, now and once more at the very end: of a long output people see that first.
func (s *stand) fail(check, format string, args ...any) {
	s.t.Helper()
	text := fmt.Sprintf("check %s: %s", check, fmt.Sprintf(format, args...))
	s.failures = append(s.failures, text)
	s.t.Error(text)
}

func (s *stand) flags(socket string) []string {
	return []string{
		"--listen", "unix:" + socket, "--lock-lease", s.lease.String(), "--drain-timeout", "500ms",
		"--tcp-keepalive", "1s", "--tcp-user-timeout", "2s",
	}
}

// startWithRelays starts the proxies. upstream is the address of Redis for them; empty: Redis is started, and reached by
// relays.
func (s *stand) startWithRelays(args []string, upstream string) {
	listens := map[node]string{proxy1: freeAddr(s.t), proxy2: freeAddr(s.t)}
	if upstream == "" {
		s.redis = redistest.Start(s.t, args...)
		listens[store] = s.redis.Addr()
	}
	links := newRelays(s.t, listens)
	s.net = links
	for i, n := range []node{proxy1, proxy2} {
		to := upstream
		if to == "" {
			to = links.reach(n, store)
		}
		s.proxies[i] = s.newProxy(n, "", listens[n], to)
		s.reach = append(s.reach, links.reach(workers, n))
	}
}

// newProxy is a proxy that has not been started.
func (s *stand) newProxy(n node, netns, listen, upstream string) *namedProxy {
	socket := filepath.Join(s.dir, fmt.Sprintf("p%d", n))
	return &namedProxy{newProxyAt(s.t, netns, listen, upstream, s.flags(socket)...), n.String(), socket}
}

func (s *stand) startInNamespaces(args []string) {
	links := newNamespaces(s.t, 1)
	s.redis = redistest.StartAt(s.t, links.place(store), args...)
	s.proxiesInNamespaces(links, s.redis.Addr())
}

func (s *stand) proxiesInNamespaces(links *namespaces, upstream string) {
	s.net = links
	s.netns = links.netns(workers)
	for i, n := range []node{proxy1, proxy2} {
		listen := links.addr(n, "7379")
		s.proxies[i] = s.newProxy(n, links.netns(n), listen, upstream)
		s.reach = append(s.reach, listen)
	}
}

// sight is where the observer looks.
func (s *stand) sight() *sight {
	if s.shards != nil {
		return s.shards.sight()
	}
	return &sight{map[*redis.Client][]string{s.redis.Client(s.t): s.keys}}
}

// home is the server that a key is at.
func (s *stand) home(key string) *redistest.Server {
	if s.shards != nil {
		return s.shards.home(key)
	}
	return s.redis
}

func (s *stand) anyProxy() *namedProxy { return s.proxies[s.rng.IntN(len(s.proxies))] }

func (s *stand) restart(p *namedProxy) {
	if err := p.start(); err != nil {
		s.t.Fatal(err)
	}
}

// dial reaches the proxy past the network.
func (p *namedProxy) dial() (*conn, error) {
	nc, err := net.DialTimeout("unix", p.socket, time.Second)
	if err != nil {
		return nil, err
	}
	return newConn(nc), nil
}

func (p *namedProxy) answers() bool {
	c, err := p.dial()
	if err != nil {
		return false
	}
	defer c.hangUp()
	v, err := c.do(time.Second, "PING")
	return err == nil && v == "PONG"
}

// grants reports whether the proxy grants a lock. The first grant takes seconds on a busy machine: the lock engine starts for it.
func (p *namedProxy) grants() bool {
	c, err := p.dial()
	if err != nil {
		return false
	}
	defer c.hangUp()
	key := "first at " + p.name
	if v, err := c.do(patience, "LOCK", key, "GRACE", "0"); err != nil {
		return false
	} else if _, ok := v.(int64); !ok {
		return false
	}
	v, err := c.do(patience, "UNLOCK", key)
	return err == nil && v == int64(1)
}

// startWorker runs the next process in a place.
func (s *stand) startWorker(place int) {
	s.started++
	cfg := workerConfig{
		Name: "w" + strconv.Itoa(s.started), Seed: s.rng.Uint64(), Proxies: s.reach, Keys: s.keys, Lease: s.lease,
		Journal: s.journal("w" + strconv.Itoa(s.started)),
	}
	if s.shards != nil || s.pair != nil {
		cfg.Sync = replicas
	}
	config, err := json.Marshal(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=worker", workerEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	p, err := startProcess(s.netns, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Kill)
	s.workers[place], s.names[place] = p, cfg.Name
}

func (s *stand) journal(worker string) string { return filepath.Join(s.dir, worker+".json") }

// history is what all workers wrote down, in no order across workers.
func (s *stand) history() map[string][]op {
	s.t.Helper()
	all := make(map[string][]op)
	for i := 1; i <= s.started; i++ {
		name := fmt.Sprintf("w%d", i)
		ops, err := readJournal(s.journal(name))
		if err != nil && !os.IsNotExist(err) { // killed before it began
			s.t.Fatal(err)
		}
		all[name] = ops
	}
	return all
}
