package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// locksOverACluster takes many locks by two proxies, on all servers: each is held by one client, waited for by a client of the other proxy, and
// handed on.
func locksOverACluster(t *testing.T, proxies map[string]*Server) {
	first, second := proxies[engineNames()[0]], proxies[engineNames()[len(engineNames())-1]]
	const locks = 200
	holder := dialClient(t, address(first))
	fences := make([]int, locks)
	for i := range fences {
		fences[i] = integer(t, holder.quiet("LOCK", fmt.Sprint("lock", i), "WAIT", "0"))
	}
	if got := holder.quiet("LOCKLIST"); !strings.HasPrefix(got, fmt.Sprintf("*%d\r\n", locks)) {
		t.Errorf("LOCKLIST: %.20q", got)
	}
	var wg sync.WaitGroup
	for i := range locks {
		waiter := dialClient(t, address(second))
		waiter.send("LOCK", fmt.Sprint("lock", i))
		wg.Go(func() {
			got, err := waiter.frame()
			if err != nil || !strings.HasPrefix(got, ":") {
				t.Errorf("the waiter of lock %d: %q, %v", i, got, err)
				return
			}
			if fence := integer(t, got); fence <= fences[i] {
				t.Errorf("lock %d: fence %d after %d", i, fence, fences[i])
			}
			if got := waiter.quiet("UNLOCK", fmt.Sprint("lock", i)); got != ":1\r\n" {
				t.Errorf("the waiter's UNLOCK of lock %d: %q", i, got)
			}
		})
	}
	redistest.Eventually(t, patience, "all waiters", func() bool { return second.shared.Locks.Waiting() == locks })
	for i := range locks {
		holder.send("UNLOCK", fmt.Sprint("lock", i))
	}
	begin := time.Now()
	for i := range locks {
		if got, err := holder.frame(); got != ":1\r\n" {
			t.Errorf("UNLOCK of lock %d: %q, %v", i, got, err)
		}
	}
	wg.Wait()
	t.Logf("%d locks went over to their waiters in %v", locks, time.Since(begin))
}

// verbsOverACluster compares what the lock commands answer with what they answer before one server.
func verbsOverACluster(t *testing.T, alone *redistest.Server, proxies map[string]*Server) {
	script := func(addr string) (said []string) {
		a, b := dialClient(t, addr), dialClient(t, addr)
		say := func(p *peer, args ...string) {
			got := p.quiet(args...)
			if strings.HasPrefix(got, ":1") && len(got) > 10 {
				got = "fence"
			}
			said = append(said, fmt.Sprintf("%v: %s", args, got))
		}
		for _, key := range []string{"va", "vb", "vc"} {
			for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK"} {
				say(a, verb, key, "WAIT", "0", "OWNER", "one")
				say(a, verb, key, "WAIT", "0", "OWNER", "one")
				say(b, verb, key, "WAIT", "20")
				say(b, "UNLOCK", key)
				say(a, "EXTENDLOCK", key, "PX", "5000", "OWNER", "one")
				say(a, "UNLOCK", key, "OWNER", "one")
				say(a, "UNLOCK", key, "OWNER", "one")
				say(a, "UNLOCK", key, "OWNER", "one")
			}
			say(a, "LOCK", key, "PX", "60000")
			say(b, "FORCEUNLOCK", key)
			say(b, "FORCEUNLOCK", key)
			say(a, "UNLOCK", key)
			say(b, "LOCKINFO", key)
			say(b, "LOCKLIST")
			say(a, "SET", key, "x")
			say(a, "LOCK", key, "WAIT", "0")
			say(a, "DEL", key)
			say(a, "MULTI")
			say(a, "GET", key)
			say(a, "LOCK", key)
			say(a, "EXEC")
			say(a, "WATCH", key)
			say(a, "LOCK", key)
			say(a, "UNLOCK", key)
			say(a, "UNWATCH")
		}
		return said
	}
	want := script(address(startProxy(t, alone)))
	for engine, srv := range proxies {
		for i, got := range script(address(srv)) {
			if got != want[i] {
				t.Errorf("%s: %q, before one server %q", engine, got, want[i])
			}
		}
		p := dialClient(t, address(srv))
		if got := p.quiet("LOCK", "a}b"); !strings.HasPrefix(got, "-CROSSSLOT ") {
			t.Errorf("a lock whose channel is of another slot: %q", got)
		}
	}
}

func TestLocksOverACluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	alone := redistest.Start(t)
	proxies := startOverCluster(t, c)
	t.Run("verbs", func(t *testing.T) { verbsOverACluster(t, alone, proxies) })
	t.Run("many", func(t *testing.T) { locksOverACluster(t, proxies) })
}

// A lockLoad takes and releases locks until it is stopped. Each lock is contended, over all proxies.
type lockLoad struct {
	t       *testing.T
	stop    chan struct{}
	wg      sync.WaitGroup
	holders []atomic.Int64 // of each lock
	rounds  atomic.Int64
	longest atomic.Int64
}

func startLockLoad(t *testing.T, proxies map[string]*Server, locks, clients int) *lockLoad {
	l := &lockLoad{t: t, stop: make(chan struct{}), holders: make([]atomic.Int64, locks)}
	n := 0
	for _, srv := range proxies {
		for range clients {
			p, first := dialClient(t, address(srv)), n
			n++
			l.wg.Go(func() { l.run(p, first*7) })
		}
	}
	return l
}

func (l *lockLoad) run(p *peer, i int) {
	for ; ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		n := i % len(l.holders)
		key, verb := fmt.Sprint("load", n), "LOCK"
		if i%5 == 0 {
			verb = "FAIRLOCK"
		}
		begin := time.Now()
		got := p.quiet(verb, key)
		if !strings.HasPrefix(got, ":") {
			l.t.Errorf("%s %s: %q", verb, key, got)
			return
		}
		if l.holders[n].Add(1) != 1 {
			l.t.Errorf("%s has two holders", key)
		}
		l.holders[n].Add(-1)
		if got := p.quiet("UNLOCK", key); got != ":1\r\n" {
			l.t.Errorf("UNLOCK %s: %q", key, got)
			return
		}
		l.rounds.Add(1)
		if took := int64(time.Since(begin)); took > l.longest.Load() {
			l.longest.Store(took)
		}
	}
}

func (l *lockLoad) end() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	l.t.Logf("%d locks were taken and released; the longest round took %v", l.rounds.Load(), time.Duration(l.longest.Load()))
	if l.rounds.Load() == 0 {
		l.t.Error("no lock was taken")
	}
}

func TestLocksSurviveTheMoveOfTheirSlots(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	proxies := startOverCluster(t, c)
	holder := dialClient(t, address(proxies[EngineGoroutine]))
	const held = 60
	for i := range held {
		integer(t, holder.quiet("LOCK", fmt.Sprint("held", i)))
	}
	load := startLockLoad(t, proxies, 12, 3)
	m := newMover(t, c)
	var slots []int
	for _, kind := range []string{"held", "load"} {
		for i := range held {
			slots = append(slots, int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", fmt.Sprint(kind, i)).(int64)))
		}
	}
	for to := range 6 {
		m.moveAll(slots, (to+1)%3, to%3)
	}
	load.end()
	for i := range held {
		if got := holder.quiet("UNLOCK", fmt.Sprint("held", i)); got != ":1\r\n" {
			t.Errorf("UNLOCK of a lock that was moved: %q", got)
		}
	}
}
