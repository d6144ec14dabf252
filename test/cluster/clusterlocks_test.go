package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// locksOverACluster takes many locks by two proxies, on all servers: each is held by one client, waited for by a client of the other proxy, and
// handed on.
func locksOverACluster(t *testing.T, proxies []*proxytest.Proxy) {
	first, second := proxies[0], proxies[1]
	const locks = 200
	holder := first.Dial(t)
	fences := make([]int, locks)
	for i := range fences {
		fences[i] = proxytest.Integer(t, holder.Quiet("LOCK", fmt.Sprint("lock", i), "WAIT", "0"))
	}
	holder.Script("LOCKLIST", fmt.Sprintf("*%d\r\n", locks))
	var wg sync.WaitGroup
	for i := range locks {
		waiter := second.Dial(t)
		waiter.Send("LOCK", fmt.Sprint("lock", i))
		wg.Go(func() {
			got, err := waiter.Frame()
			if err != nil || !strings.HasPrefix(got, ":") {
				t.Errorf("the waiter of lock %d: %q, %v", i, got, err)
				return
			}
			if fence := proxytest.Integer(t, got); fence <= fences[i] {
				t.Errorf("lock %d: fence %d after %d", i, fence, fences[i])
			}
			waiter.Script(fmt.Sprint("UNLOCK lock", i), ":1")
		})
	}
	proxytest.WaitFor(t, "all waiters", func() bool { return second.Stats().Waiting == locks })
	for i := range locks {
		holder.Send("UNLOCK", fmt.Sprint("lock", i))
	}
	begin := time.Now()
	for range locks {
		holder.Gets(":1")
	}
	wg.Wait()
	t.Logf("%d locks went over to their waiters in %v", locks, time.Since(begin))
}

// verbsOverACluster compares what the lock commands answer with what they answer before one server.
func verbsOverACluster(t *testing.T, alone *redistest.Server, proxies []*proxytest.Proxy) {
	script := func(addr string) (said []string) {
		a, b := proxytest.Dial(t, addr), proxytest.Dial(t, addr)
		say := func(p *proxytest.Client, args ...string) {
			got := p.Quiet(args...)
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
	want := script(proxytest.Start(t, alone).Addr())
	for _, srv := range proxies {
		for i, got := range script(srv.Addr()) {
			if got != want[i] {
				t.Errorf("%q, before one server %q", got, want[i])
			}
		}
		p := srv.Dial(t)
		p.Script("LOCK a}b", "-CROSSSLOT ")
	}
}

func TestLocksOverACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	alone := redistest.Start(t)
	proxies := twoProxies(t, c)
	t.Run("verbs", func(t *testing.T) { verbsOverACluster(t, alone, proxies) })
	t.Run("many", func(t *testing.T) { locksOverACluster(t, proxies) })
	t.Run("forced", func(t *testing.T) { forcedOverACluster(t, proxies) })
	t.Run("fair", func(t *testing.T) { fairOrderOverACluster(t, c, proxies) })
	t.Run("half moved", func(t *testing.T) { locksAwaitTheMove(t, c) })
	t.Run("scripts forgotten", func(t *testing.T) { scriptsAreLoadedAnew(t, c, proxies) })
	t.Run("subscriber", func(t *testing.T) { subscribersLock(t, proxies) })
}

// twoProxies starts two proxies in front of a cluster.
func twoProxies(t *testing.T, c *redistest.Cluster, change ...func(*proxy.Options)) []*proxytest.Proxy {
	return []*proxytest.Proxy{proxytest.StartOverCluster(t, c, change...), proxytest.StartOverCluster(t, c, change...)}
}

// forcedOverACluster ends locks of all servers through another proxy than that of their holder, which is told.
func forcedOverACluster(t *testing.T, proxies []*proxytest.Proxy) {
	holder, by := proxies[0].Dial(t), proxies[1].Dial(t)
	holder.Script("HELLO 3", "%")
	for i := range 12 {
		key := fmt.Sprint("forced", i)
		fence := holder.Quiet("LOCK", key, "PX", "60000", "OWNER", "job")
		by.Script("FORCEUNLOCK "+key, ":1")
		want := fmt.Sprintf(">4\r\n$9\r\nlock-lost\r\n$%d\r\n%s\r\n%s$6\r\nforced\r\n", len(key), key, fence)
		holder.Gets(want)
	}
}

// fairOrderOverACluster has fair waiters stand in one queue over all proxies, while the slot moves twice.
func fairOrderOverACluster(t *testing.T, c *redistest.Cluster, proxies []*proxytest.Proxy) {
	const waiters = 8
	m := newMover(t, c)
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", "fair").(int64))
	holder := proxies[0].Dial(t)
	last := proxytest.Integer(t, holder.Quiet("LOCK", "fair"))
	var queue []*proxytest.Client
	for i := range waiters {
		p := proxies[i%len(proxies)].Dial(t)
		p.Send("FAIRLOCK", "fair")
		proxytest.WaitFor(t, "a place in the queue", func() bool {
			n, err := c.Nodes[m.owner[slot]].Client(t).LLen(t.Context(), "redisson_lock_queue:{fair}").Result()
			return err == nil && int(n) == i+1
		})
		queue = append(queue, p)
		if i == waiters/2 {
			m.move(slot, (m.owner[slot]+1)%3)
		}
	}
	m.move(slot, (m.owner[slot]+1)%3)
	proxytest.WaitFor(t, "the waiters to listen where the slot is", func() bool { // a release passes over those that do not
		at := c.Nodes[m.owner[slot]].Client(t)
		channels, err := at.PubSubShardChannels(t.Context(), "redisson_lock__channel:{fair}:*").Result()
		return err == nil && len(channels) == waiters
	})
	for i, p := range append([]*proxytest.Client{holder}, queue...) {
		if i > 0 {
			got, err := p.Frame()
			if err != nil || !strings.HasPrefix(got, ":") {
				t.Fatalf("waiter %d: %q, %v", i, got, err)
			}
			if fence := proxytest.Integer(t, got); fence <= last {
				t.Errorf("waiter %d: fence %d after %d", i, fence, last)
			} else {
				last = fence
			}
		}
		p.Script("UNLOCK fair", ":1")
	}
	m.move(slot, slot*3/redistest.Slots)
}

// locksAwaitTheMove leaves a slot half moved for longer than failover-wait: Redis refuses scripts of several keys all the time.
func locksAwaitTheMove(t *testing.T, c *redistest.Cluster) {
	const wait = 2500 * time.Millisecond // a busy machine may stand still for a while
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = wait })
	m := newMover(t, c)
	key := "moving"
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
	from, to := m.owner[slot], (m.owner[slot]+1)%3
	holder, waiter, impatient, stopped := srv.Dial(t), srv.Dial(t), srv.Dial(t), srv.Dial(t)
	fence := proxytest.Integer(t, holder.Quiet("LOCK", key))
	m.begin(slot, to)
	begin := time.Now()
	waiter.Send("LOCK", key)
	impatient.Send("LOCK", key, "WAIT", strconv.Itoa(int((wait + 500*time.Millisecond).Milliseconds())))
	stopped.Script("TRYLOCK "+key, "-TRYAGAIN ")
	holder.Send("UNLOCK", key)
	impatient.Gets("$-1")
	m.keys(slot, to)
	m.end(slot, to)
	if took := time.Since(begin); took < wait {
		t.Errorf("the slot was half moved for %v only", took)
	}
	holder.Gets(":1")
	if got, err := waiter.Frame(); err != nil || !strings.HasPrefix(got, ":") || proxytest.Integer(t, got) <= fence {
		t.Errorf("the waiter while the slot was half moved: %q, %v", got, err)
	}
	m.move(slot, from)
	waiter.Script("UNLOCK "+key, ":1")
}

// scriptsAreLoadedAnew forgets the scripts of all servers between the commands of one session.
func scriptsAreLoadedAnew(t *testing.T, c *redistest.Cluster, proxies []*proxytest.Proxy) {
	for _, srv := range proxies {
		p := srv.Dial(t)
		for range 3 {
			for _, key := range []string{"sa", "sb", "sc"} {
				proxytest.Integer(t, p.Quiet("LOCK", key, "WAIT", "0"))
				for _, node := range c.Nodes {
					node.Do(t, "SCRIPT", "FLUSH")
				}
				p.Script("UNLOCK "+key, ":1")
			}
		}
	}
}

// subscribersLock has a RESP3 client lock while it is subscribed, on each server: its own connection is at one of them.
func subscribersLock(t *testing.T, proxies []*proxytest.Proxy) {
	for _, srv := range proxies {
		p := srv.Dial(t)
		p.Each("HELLO 3", "SUBSCRIBE ch")
		for _, key := range []string{"ra", "rb", "rc"} {
			proxytest.Integer(t, p.Quiet("LOCK", key, "WAIT", "0"))
			p.Script("UNLOCK "+key, ":1")
		}
	}
}

// A planned failover is no error, for locks that are taken, held and waited for. A primary that dies takes nothing with it that its replica has.
func TestLocksCrossTheFailoverOfAPrimary(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	proxies := twoProxies(t, c)
	first, second := proxies[0], proxies[1]
	holder := first.Dial(t)
	const held = 30
	fences := make([]int, held)
	for i := range held {
		fences[i] = proxytest.Integer(t, holder.Quiet("LOCK", fmt.Sprint("held", i)))
	}
	for _, key := range []string{"synced", "synced2", "synced3"} { // on each server
		holder.Script("LOCK "+key+" SYNC 1 WAIT 9000", ":", "TRYLOCK "+key+"x SYNC 2", "-NOTSYNCED ")
	}
	load := startLockLoad(t, proxies, 12, 3, false)
	for i := range 3 {
		c.Failover(c.Nodes[3+i])
	}
	load.end()

	hit := proxytest.KeyOf(t, c, c.Nodes[3])
	fence := proxytest.Integer(t, holder.Quiet("LOCK", hit))
	waiters := []*proxytest.Client{first.Dial(t), second.Dial(t)}
	for i, p := range waiters {
		p.Send([]string{"LOCK", "FAIRLOCK"}[i], hit)
	}
	for _, srv := range proxies {
		proxytest.WaitFor(t, "a waiter", func() bool { return srv.Stats().Waiting > 0 })
	}
	c.Nodes[3].AwaitReplicas(t, 1)
	epoch := first.Shared().Upstream.View().Epoch
	c.Nodes[3].Kill()
	other := second.Dial(t)
	elsewhere := proxytest.KeyOf(t, c, c.Nodes[4])
	longest, still := time.Duration(0), proxytest.Standstill(t, c.Nodes[4])
	for first.Shared().Upstream.View().Epoch == epoch {
		begin := time.Now()
		proxytest.Integer(t, other.Quiet("LOCK", elsewhere, "WAIT", "0"))
		other.Quiet("UNLOCK", elsewhere)
		longest = max(longest, time.Since(begin))
	}
	t.Logf("longest round on another server: %v", longest)
	if longest > time.Second+still() {
		t.Errorf("a round on another server took %v, and the machine stood still for %v", longest, still())
	}
	proxytest.WaitFor(t, "the lock to be the holder's", func() bool { return holder.Quiet("UNLOCK", hit) == ":1\r\n" })
	granted := make(chan int, len(waiters))
	var releasing sync.WaitGroup
	for _, p := range waiters {
		releasing.Go(func() {
			got, err := p.Frame()
			if err != nil || !strings.HasPrefix(got, ":") {
				t.Errorf("a waiter: %q, %v", got, err)
			}
			n, _ := strconv.Atoi(strings.Trim(got, ":\r\n"))
			granted <- n // before the next waiter is granted the lock
			p.Script("UNLOCK "+hit, ":1")
		})
	}
	for range waiters {
		select {
		case next := <-granted:
			if next <= fence {
				t.Errorf("fence %d after %d", next, fence)
			}
			fence = next
		case <-time.After(proxytest.Patience):
			t.Fatal("a waiter has not got the lock")
		}
	}
	releasing.Wait()
	for i := range held {
		holder.Script(fmt.Sprint("UNLOCK held", i)+" FENCE "+strconv.Itoa(fences[i]), ":1")
	}
}

// A lockLoad takes and releases locks until it is stopped. Each lock is contended, over all proxies.
type lockLoad struct {
	t       *testing.T
	shared  bool // two of three grants are shared
	clients proxytest.Meanwhile
	holders []atomic.Int64 // of each lock; one that is alone counts as alone
	crowds  atomic.Int64   // shared grants beside others
	rounds  atomic.Int64
	longest atomic.Int64
}

// alone is more than the shared holders of a lock.
const alone = 1000

func startLockLoad(t *testing.T, proxies []*proxytest.Proxy, locks, clients int, shared bool) *lockLoad {
	l := &lockLoad{t: t, shared: shared, holders: make([]atomic.Int64, locks)}
	n := 0
	for _, srv := range proxies {
		for range clients {
			p, first := srv.Dial(l.t), n
			n++
			l.clients.Go(func(round int) bool { return l.round(p, first*7+round) })
		}
	}
	return l
}

// round reports whether all was well.
func (l *lockLoad) round(p *proxytest.Client, i int) bool {
	n := i % len(l.holders)
	key, verb := fmt.Sprint("load", n), "LOCK"
	if i%5 == 0 {
		verb = "FAIRLOCK"
	}
	args, weight := []string{verb, key}, int64(alone)
	if l.shared && i/len(l.holders)%3 != 0 {
		args, weight = append(args, "SHARED"), 1
	}
	begin := time.Now()
	got := p.Quiet(args...)
	if !strings.HasPrefix(got, ":") {
		l.t.Errorf("%q: %q", args, got)
		return false
	}
	switch now := l.holders[n].Add(weight); {
	case weight == alone && now != alone, weight == 1 && now >= alone:
		l.t.Errorf("%s has two holders, %q is one of them", key, args)
	case weight == 1 && now > 1:
		l.crowds.Add(1)
	}
	if l.shared { // so that others may come meanwhile
		p.Quiet("LOCKINFO", key)
	}
	l.holders[n].Add(-weight)
	if got := p.Quiet("UNLOCK", key); got != ":1\r\n" {
		l.t.Errorf("UNLOCK %s: %q", key, got)
		return false
	}
	l.rounds.Add(1)
	if took := int64(time.Since(begin)); took > l.longest.Load() {
		l.longest.Store(took)
	}
	return true
}

func (l *lockLoad) end() {
	l.t.Helper()
	l.clients.End()
	l.t.Logf("%d locks were taken and released; the longest round took %v", l.rounds.Load(), time.Duration(l.longest.Load()))
	if l.rounds.Load() == 0 {
		l.t.Error("no lock was taken")
	}
	if l.shared && l.crowds.Load() == 0 {
		l.t.Error("no lock was shared")
	}
}

// After many moves each slot may be a range of its own. CLUSTER SLOTS repeats all servers for each of them, so the
// view is refreshed without it.
func TestLocksAreRenewedWhileScatteredSlotsMove(t *testing.T) {
	c := redistest.StartScatteredCluster(t, 3, 0, "--cluster-node-timeout", "5000") // a busy machine is no failure
	const lease = 3 * time.Second
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient, func(o *proxy.Options) { o.Locks.Lease = lease })
	m := &mover{t: t, c: c}
	for slot := range m.owner {
		m.owner[slot] = slot % c.Primaries
	}
	const held = 30
	// On a busy machine the first view of all ranges takes longer than commands wait for it, and the first connections of the lock engine take longer
	// than a lease.
	var holder *proxytest.Client
	redistest.Eventually(t, time.Minute, "a proxy that serves all servers", func() bool {
		holder = srv.Dial(t) // the one before may have been closed
		for i := range held {
			holder.Send("GET", fmt.Sprint("held", i))
			if got, _ := holder.LateFrame(); got != "$-1\r\n" {
				return false
			}
		}
		return true
	})
	redistest.Eventually(t, time.Minute, "a proxy that renews", func() bool {
		for i := range held {
			proxytest.Integer(t, holder.Quiet("LOCK", fmt.Sprint("held", i)))
		}
		begin, renewed := time.Now(), true
		proxytest.WaitFor(t, "the first leases to be over", func() bool { return time.Since(begin) > lease })
		for i := range held {
			renewed = holder.Quiet("UNLOCK", fmt.Sprint("held", i)) == ":1\r\n" && renewed
		}
		return renewed
	})
	var moving []int
	for i := range held {
		key := fmt.Sprint("held", i)
		proxytest.Integer(t, holder.Quiet("LOCK", key))
		moving = append(moving, hashslot.Of([]byte(key)))
	}
	for _, node := range c.Nodes {
		node.Do(t, "CONFIG", "RESETSTAT")
	}
	begin := time.Now()
	locks := startLockLoad(t, []*proxytest.Proxy{srv}, 12, 1, false)
	for to := range 3 {
		m.moveAll(moving, (to+1)%3, to)
	}
	proxytest.WaitFor(t, "the first leases to be over", func() bool { return time.Since(begin) > lease })
	locks.end()
	for i := range held {
		holder.Script(fmt.Sprint("UNLOCK held", i), ":1")
	}
	for _, node := range c.Nodes {
		refreshes, expensive := calls(t, node, "cluster|nodes"), calls(t, node, "cluster|slots")
		t.Logf("CLUSTER NODES was asked %d times, CLUSTER SLOTS %d times", refreshes, expensive)
		if expensive > 2 && expensive > refreshes/3 { // addresses are asked for anew from time to time
			t.Errorf("a node was asked %d times for CLUSTER SLOTS", expensive)
		}
	}
}

// calls is how often a node has been asked a command.
func calls(t testing.TB, node *redistest.Server, command string) int {
	t.Helper()
	return node.Info(t, "commandstats", "cmdstat_"+command+":calls=")
}

// A primary that is stopped, and not yet replaced, holds up the renewals of its own locks only, however many there are.
func TestAStoppedPrimaryCostsNoLeaseElsewhere(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "60000")
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Locks.Lease = lease })
	holder := srv.Dial(t)
	var elsewhere []string
	for i := range 600 { // more of them are on the stopped server than there are workers
		key := fmt.Sprint("lease", i)
		proxytest.Integer(t, holder.Quiet("LOCK", key, "WAIT", "0"))
		if hashslot.Of([]byte(key)) >= redistest.Slots/3 {
			elsewhere = append(elsewhere, key)
		}
	}
	still := proxytest.Standstill(t, c.Nodes[1])
	c.Nodes[0].Pause()
	waiter := srv.Dial(t)
	begin := time.Now()
	lost := func(what, reply string) {
		if still() > lease/6 { // then renewals may come too late
			t.Skipf("the machine has stood still for %v", still())
		}
		t.Fatalf("%s: %q", what, reply)
	}
	for time.Since(begin) < 2*lease+time.Second {
		if got := waiter.Quiet("LOCK", elsewhere[0], "WAIT", "500"); got != "$-1\r\n" {
			lost("the lock of another server", got)
		}
	}
	for _, key := range elsewhere {
		if got := holder.Quiet("UNLOCK", key); got != ":1\r\n" {
			lost("UNLOCK "+key, got)
		}
	}
	c.Nodes[0].Continue()
}

// A primary hangs, and only renewals have to do with it. They reach its successor before the leases are over, though nothing announces it.
func TestALeaseFollowsAPrimaryThatNoCommandUses(t *testing.T) {
	t.Parallel()
	const lease = 4500 * time.Millisecond
	c := redistest.StartCluster(t, 3, 1, "--cluster-node-timeout", "500")
	key := proxytest.KeyOf(t, c, c.Nodes[1])
	var proxies []*proxytest.Proxy
	var holders []*proxytest.Client
	for i := range 4 {
		srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Locks.Lease = lease })
		p := srv.Dial(t)
		proxytest.Integer(t, p.Quiet("LOCK", fmt.Sprintf("{%s}%d", key, i)))
		proxies, holders = append(proxies, srv), append(holders, p)
		first := c.Nodes[1].Do(t, "PEXPIRETIME", fmt.Sprintf("{%s}%d", key, i)).(int64)
		proxytest.WaitFor(t, "a renewal, for which the lock engine connects", func() bool {
			return c.Nodes[1].Do(t, "PEXPIRETIME", fmt.Sprintf("{%s}%d", key, i)).(int64) > first
		})
	}
	c.Nodes[1].Pause()
	defer c.Nodes[1].Continue()
	begin := time.Now()
	for i, srv := range proxies {
		proxytest.WaitFor(t, "the successor to be known", func() bool {
			return srv.Shared().Upstream.View().Primary(c.ID(c.Nodes[4])) != nil
		})
		t.Logf("proxy %d knows the successor after %v", i, time.Since(begin).Round(time.Millisecond))
	}
	proxytest.WaitFor(t, "the first leases to be over", func() bool { return time.Since(begin) > lease })
	for i, p := range holders {
		p.Script(fmt.Sprintf("UNLOCK {%s}%d", key, i), ":1")
	}
}

// A release looks at the leases of the other holders, whose keys no command names. While one of them has moved alone, Redis ends the script:
// the release is carried out behind the move, and the other holder goes on to hold the lock.
func TestAReleaseAwaitsTheLeaseOfAnotherHolder(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	srv := proxytest.StartOverCluster(t, c)
	p, other, waiter := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	const key = "{tag}k"
	move := away(c, key)
	proxytest.Integer(t, other.Quiet("LOCK", key, "SHARED"))
	lease := move.From.Client(t).Keys(t.Context(), key+":*").Val()
	proxytest.Integer(t, p.Quiet("LOCK", key, "SHARED"))
	waiter.Send("FAIRLOCK", key)
	proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	move.From.Do(t, "SET", "redisson_lock__channel:"+key, "nobody", "PX", 60000) // with it all keys that the release names are there
	move.Begin()
	migrate(t, move, lease[0])
	failures := func() string {
		info := move.From.Client(t).Info(t.Context(), "commandstats").Val()
		_, evalsha, _ := strings.Cut(info, "cmdstat_evalsha:")
		_, failed, _ := strings.Cut(evalsha, "failed_calls=")
		n, _, _ := strings.Cut(failed, "\r\n")
		return n
	}
	before := failures()
	released := make(chan string)
	go func() { released <- p.Quiet("UNLOCK", key) }()
	proxytest.WaitFor(t, "Redis to end the script", func() bool { return failures() != before })
	move.Keys()
	move.End()
	if got := <-released; got != ":1\r\n" {
		t.Errorf("UNLOCK while a lease has moved alone: %q", got)
	}
	p.Script("TRYLOCK "+key, "$-1")
	other.Script("UNLOCK "+key, ":1")
	if got, err := waiter.LateFrame(); err != nil || got[0] != ':' {
		t.Errorf("the waiter: %q, %v", got, err)
	}
}

// All keys of a slot have moved, and the servers are not told yet where it is: for longer than commands of data are sent again.
func TestLockCommandsAwaitTheEndOfAMove(t *testing.T) {
	t.Parallel()
	const wait = 300 * time.Millisecond
	c := redistest.StartCluster(t, 2, 0)
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = wait })
	p, other := srv.Dial(t), srv.Dial(t)
	const key = "{tag}k"
	move := away(c, key)
	proxytest.Integer(t, p.Quiet("LOCK", key))
	move.Begin()
	move.Keys()
	begin := time.Now()
	p.Send("UNLOCK", key)
	other.Send("LOCK", "{tag}new")
	proxytest.WaitFor(t, "the limit of other commands to be over", func() bool { return time.Since(begin) > 3*wait })
	move.End()
	p.Gets(":1")
	proxytest.Integer(t, other.Next())
}

// A slot remains half moved when renewals are due. Some locks are at the old server, some at the new one, and of shared locks and permits only some of
// the keys have moved. Redis refuses to renew them together, and it is no loss. A release is carried out behind the move.
func TestLeasesAreRenewedWhileTheirSlotIsHalfMoved(t *testing.T) {
	t.Parallel()
	const tag, locks = "{tag}", 4
	for _, kind := range []struct {
		options, rival string
		moved          []string // patterns of the keys that move first
		lease, renewed time.Duration
	}{
		{"", "", []string{tag + "0", tag + "1", tag + "2"}, 3 * time.Second, 6 * time.Second}, // all leases end in time
		{" SHARED", "", []string{tag + "0", tag + "1:*"}, 9 * time.Second, 5 * time.Second},
		{" LIMIT 2", " LIMIT 1", []string{tag + "0", tag + "1:timeout", tag + "2:permits"}, 9 * time.Second, 5 * time.Second},
	} {
		t.Run(kind.options, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 2, 0)
			srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Locks.Lease = kind.lease })
			p, rival := srv.Dial(t), srv.Dial(t)
			for i := range locks {
				p.Script(fmt.Sprint("LOCK "+tag, i, kind.options), ":")
			}
			move := away(c, tag)
			move.Begin()
			for _, pattern := range kind.moved {
				keys := move.From.Client(t).Keys(t.Context(), pattern).Val()
				if len(keys) != 1 {
					t.Fatalf("%s: %q", pattern, keys)
				}
				migrate(t, move, keys...)
			}
			begin := time.Now()
			proxytest.WaitFor(t, "renewals to be due", func() bool { return time.Since(begin) > kind.renewed })
			released := make(chan string)
			go func() { released <- p.Quiet("UNLOCK", tag+"1") }()
			move.Keys()
			move.End()
			if got := <-released; got != ":1\r\n" {
				t.Errorf("UNLOCK while the keys move: %q", got)
			}
			for _, i := range []int{0, 2, 3} {
				rival.Script(fmt.Sprint("TRYLOCK "+tag, i, kind.rival), "$-1")
				p.Script(fmt.Sprint("UNLOCK "+tag, i), ":1")
			}
		})
	}
}

// Shared holders at two proxies keep their locks, and nobody is alone beside them, while the slots of the locks move, primaries fail over, and one dies.
func TestSharedLocksCrossMovesAndFailovers(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	proxies := twoProxies(t, c, proxytest.Patient)
	first, second := proxies[0], proxies[1]
	holders := []*proxytest.Client{first.Dial(t), second.Dial(t)}
	rival := second.Dial(t)
	const held = 12
	var moving []int
	for i := range held {
		key := fmt.Sprint("held", i)
		for _, p := range holders {
			proxytest.Integer(t, p.Quiet("LOCK", key, "SHARED"))
		}
		moving = append(moving, hashslot.Of([]byte(key)), hashslot.Of([]byte(fmt.Sprint("load", i))))
	}
	excluded := func(when string) {
		t.Helper()
		for i := range held {
			rival.Script(fmt.Sprint("TRYLOCK held", i), "$-1")
		}
	}
	load := startLockLoad(t, proxies, 3, 4, true)
	m := newMover(t, c)
	for to := range 3 {
		m.moveAll(moving, (to+1)%3, to)
	}
	excluded("after the moves")
	for i := range 3 {
		c.Failover(c.Nodes[3+i])
	}
	load.end()
	excluded("after the failovers")

	hit := proxytest.KeyOf(t, c, c.Nodes[3])
	fences := make([]int, len(holders))
	for i, p := range holders {
		fences[i] = proxytest.Integer(t, p.Quiet("LOCK", hit, "SHARED", "SYNC", "1", "WAIT", "9000"))
	}
	rival.Script("TRYLOCK "+hit+" SHARED SYNC 2", "-NOTSYNCED ", "UNLOCK "+hit, "-NOTHELD ")
	c.Nodes[3].Kill()
	rival.Send("LOCK", hit)
	for i, p := range holders {
		if again := proxytest.Integer(t, p.Quiet("LOCK", hit, "SHARED")); again != fences[i] {
			t.Errorf("holder %d enters again with fence %d, it had %d", i, again, fences[i])
		}
		for _, want := range []string{":0\r\n", ":1\r\n"} {
			p.Script("UNLOCK "+hit, want)
		}
	}
	if got, err := rival.Frame(); err != nil || !strings.HasPrefix(got, ":") || proxytest.Integer(t, got) <= fences[1] {
		t.Errorf("the rival: %q, %v, behind fence %d", got, err, fences[1])
	}
	for i := range held {
		for _, p := range holders {
			p.Script(fmt.Sprint("UNLOCK held", i), ":1")
		}
	}
}
