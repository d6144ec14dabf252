package failover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestSyncedLocksOutliveTheirPrimary kills the primary right after the replies. Without SYNC some of the grants would be lost with it. All holders have
// their locks at the new one, and nobody is beside them.
func TestSyncedLocksOutliveTheirPrimary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, shared, sync string
		all                bool // by the setting
	}{
		{name: "SYNC 2", sync: " SYNC 2"}, {name: "SHARED SYNC 2", shared: " SHARED", sync: " SYNC 2"}, {name: "lock.sync all", all: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newFailoverStand(t, func(o *proxy.Options) {
				if c.all {
					o.Locks.Sync = proxy.SyncAll
				}
			})
			primary := s.sentinels.Primary()
			type hold struct {
				by    *proxytest.Client
				fence int
			}
			const n = 30
			var holds [n][]*hold // of each lock; shared ones have one by each proxy
			var rivals []*proxytest.Client
			for i := range n {
				for j := range s.proxies {
					if j == i%len(s.proxies) || c.shared != "" {
						holds[i] = append(holds[i], &hold{by: s.proxies[j].Dial(t)})
					}
				}
				rivals = append(rivals, s.proxies[(i+1)%len(s.proxies)].Dial(t))
			}
			for i := range n {
				for _, h := range holds[i] {
					h.by.Raw(proxytest.Inline(fmt.Sprint("LOCK k", i, c.shared, c.sync, " WAIT 20000")))
				}
			}
			for i := range n {
				for _, h := range holds[i] {
					h.fence = proxytest.Integer(t, h.by.Next())
				}
			}
			primary.Kill()
			now, _ := s.newPrimary(t, primary)
			for i, r := range rivals {
				r.Script(fmt.Sprint("TRYLOCK k", i), "$-1")
				r.Send("LOCK", fmt.Sprint("k", i), "WAIT", "20000")
			}
			proxytest.WaitFor(t, "the rivals to wait at the new primary", func() bool {
				for i := range n {
					if now.Do(t, "PUBSUB", "NUMSUB", fmt.Sprintf("redisson_lock__channel:{k%d}", i)).([]any)[1] == int64(0) {
						return false
					}
				}
				return true
			})
			for i := range n {
				for _, h := range holds[i] {
					again, unlock := fmt.Sprint("LOCK k", i, c.shared, " SYNC 0"), fmt.Sprint("UNLOCK k", i)
					h.by.Script(again, fmt.Sprint(":", h.fence), unlock, ":0", unlock, ":1")
				}
			}
			if c.all {
				return // the old primary is a replica now, and is down
			}
			for i, r := range rivals {
				fence := proxytest.Integer(t, r.Next())
				for _, h := range holds[i] { // shared ones are granted in any order
					if fence <= h.fence {
						t.Errorf("k%d: the rival got fence %d behind %d", i, fence, h.fence)
					}
				}
			}
		})
	}
}

// taker acquires one lock after the other, and keeps them.
type taker struct {
	name, addr string
	took       []string // the locks that it was told it holds
	unsynced   int
}

func (k *taker) run(t *testing.T, stop <-chan struct{}) {
	var p *proxytest.Client
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		if p == nil {
			p = proxytest.Dial(t, k.addr)
		}
		key := fmt.Sprint(k.name, n)
		p.Send("LOCK", key, "SYNC", "2", "WAIT", "300")
		reply, err := p.Frame()
		switch {
		case err != nil:
			p = nil
		case strings.HasPrefix(reply, ":"):
			k.took = append(k.took, key)
		case strings.HasPrefix(reply, "-NOTSYNCED"):
			k.unsynced++
		}
	}
}

// TestAGrantThatNoReplicaHasLeavesNothing stops all replicas. Commands with SYNC end with their WAIT, of whatever kind they are, and delay no others.
func TestAGrantThatNoReplicaHasLeavesNothing(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary), redistest.StartReplica(t, primary)}
	sentinels := redistest.StartSentinels(t, 1, primary, replicas, "down-after-milliseconds 60000")
	known := proxytest.Start(t, primary, func(o *proxy.Options) {
		o.Upstream.Addr, o.Locks.Sync = sentinels.URL(), proxy.SyncAll
	})
	proxies := []*proxytest.Proxy{known, proxytest.Start(t, primary), proxytest.Start(t, primary)}
	other := proxies[1].Dial(t)
	proxytest.Integer(t, other.Quiet("LOCK", "held", "SYNC", "2", "WAIT", "20000"))
	for _, r := range replicas {
		r.Pause()
	}
	const wait = 800 * time.Millisecond
	begin := time.Now()
	var all []*proxytest.Client
	for i, srv := range proxies {
		for _, verb := range []string{"LOCK", "FAIRLOCK", "TRYLOCK"} {
			p := srv.Dial(t)
			p.Send(verb, fmt.Sprint("gone", i, verb), "SYNC", "1", "WAIT", "800")
			all = append(all, p)
		}
	}
	for range 20 {
		proxytest.Integer(t, other.Quiet("LOCK", "free", "SYNC", "0", "WAIT", "0"))
		other.Script("UNLOCK free", ":1")
	}
	for _, p := range all {
		p.Gets("-NOTSYNCED 0 of 1 replicas had the grant in time, and it was rolled back\r\n")
	}
	if took := time.Since(begin); took < wait || took > 10*wait {
		t.Errorf("the answers came after %v", took)
	}
	if left, _ := primary.Do(t, "KEYS", "*gone*").([]any); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	other.Script("UNLOCK held", ":1")

	replicas[0].Continue() // the other one stays known to the Sentinel
	p := known.Dial(t)
	proxytest.WaitFor(t, "one of two", func() bool {
		return p.Quiet("TRYLOCK", "gone") == "-NOTSYNCED 1 of 2 replicas had the grant in time, and it was rolled back\r\n"
	})
	proxytest.Integer(t, p.Quiet("LOCK", "one", "SYNC", "1", "WAIT", "20000"))
	replicas[1].Continue()
	proxytest.Integer(t, p.Quiet("LOCK", "gone", "WAIT", "20000"))
}

// TestGrantsOfAClusterShareAWaitAtEachServer acquires locks of many slots, beside clients that ask for more replicas than there are.
func TestGrantsOfAClusterShareAWaitAtEachServer(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	srv := proxytest.Start(t, c.Nodes[0], func(o *proxy.Options) { o.Upstream.Addr = "cluster://" + c.Addrs() })
	const n = 300
	begin := func(name string, replicas int) (all []*proxytest.Client) {
		for i := range n {
			p := srv.Dial(t)
			p.Send("LOCK", fmt.Sprint(name, i), "SYNC", fmt.Sprint(replicas), "WAIT", "4000")
			all = append(all, p)
		}
		return all
	}
	greedy := begin("greedy", 99)
	modest := begin("modest", 1)
	for _, p := range modest {
		p.Gets(":")
	}
	one := srv.Dial(t)
	for i, p := range greedy {
		p.Gets("-NOTSYNCED ")
		one.Script(fmt.Sprint("EXISTS greedy", i), ":0")
	}
}

// TestAllReplicasOfAClusterCountWhileTheyAreDown kills a replica. CLUSTER SLOTS hides it then, and lock.sync: all must not.
func TestAllReplicasOfAClusterCountWhileTheyAreDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	first, second := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	srv := proxytest.Start(t, c.Nodes[0], func(o *proxy.Options) {
		o.Upstream.Addr, o.Locks.Sync = "cluster://"+c.Addrs(), proxy.SyncAll
	})
	p := srv.Dial(t)
	for _, key := range []string{first, second} {
		at := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
		proxytest.WaitFor(t, "the view with the replica", func() bool { return srv.Shared().Upstream.View().Replicas(at) == 1 })
		proxytest.Integer(t, p.Quiet("LOCK", key))
		p.Quiet("UNLOCK", key)
	}
	replica := c.Nodes[c.Primaries] // of the first server
	replica.Kill()
	const want = "-NOTSYNCED 0 of 1 replicas had the grant in time, and it was rolled back\r\n"
	p.Script("TRYLOCK "+first, want)
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", first).(int64))
	proxytest.WaitFor(t, "the view without the replica", func() bool {
		return srv.Shared().Upstream.View().Server(c.ID(replica)) == nil
	})
	if n := srv.Shared().Upstream.View().Replicas(slot); n != 1 {
		t.Errorf("the view knows %d replicas", n)
	}
	p.Script("TRYLOCK "+first, want, "EXISTS "+first, ":0")
	proxytest.Integer(t, p.Quiet("TRYLOCK", second))
	for _, node := range c.Nodes {
		if node != replica {
			node.Do(t, "CLUSTER", "FORGET", c.ID(replica))
		}
	}
	proxytest.WaitFor(t, "the replica to be forgotten", func() bool {
		return p.Quiet("TRYLOCK", first) == "-NOTSYNCED lock.sync is all, and no replica is known; nothing was granted\r\n"
	})
}
