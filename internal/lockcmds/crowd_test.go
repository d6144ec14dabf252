package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// contenders are clients of one proxy that want one lock by that verb.
type contenders struct {
	p       *proxy
	verb    string
	clients int
}

// load has clients take a lock and give it back until there were so many grants. It returns the share of each group of
// them, and the longest wait of one in grants. The first quarter of the grants does not count: until then proxies
// connect and subscribe.
func load(t *testing.T, grants int, groups []contenders) (shares []float64, longest int) {
	t.Helper()
	type client struct {
		*session
		group, since int
		wantsLock    bool
	}
	var clients []*client
	for g, group := range groups {
		for range group.clients {
			clients = append(clients, &client{session: group.p.session(2), group: g})
		}
	}
	shares = make([]float64, len(groups))
	replies := make(chan *client)
	stop := make(chan struct{})
	for _, c := range clients {
		go func() {
			for {
				select {
				case reply := <-c.Replies:
					c.wantsLock = reply != ":1"
					select {
					case replies <- c:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		}()
		c.send(groups[c.group].verb + " k")
	}
	defer close(stop)
	for total := 0; total < grants; {
		select {
		case c := <-replies:
			if !c.wantsLock {
				c.since = total
				c.send(groups[c.group].verb + " k")
				continue
			}
			total++
			shares[c.group]++
			if total == grants/4 {
				clear(shares)
				for _, other := range clients {
					other.since = total
				}
			} else if total > grants/4 {
				longest = max(longest, total-c.since)
			}
			c.send("UNLOCK k")
		case <-time.After(patience):
			t.Fatalf("no grant after %d: %v", total, shares)
		}
	}
	for _, c := range clients {
		longest = max(longest, grants-c.since)
	}
	for i := range shares {
		shares[i] /= float64(grants - grants/4)
	}
	return shares, longest
}

func TestEverybodyGetsAShare(t *testing.T) {
	type groups = []contenders
	srv := redistest.Start(t)
	for name, of := range map[string]func(p, q *proxy) groups{
		"two proxies":          func(p, q *proxy) groups { return groups{{p, "LOCK", 16}, {q, "LOCK", 16}} },
		"one client at each":   func(p, q *proxy) groups { return groups{{p, "LOCK", 1}, {q, "LOCK", 1}} },
		"LOCK beside FAIRLOCK": func(p, _ *proxy) groups { return groups{{p, "LOCK", 16}, {p, "FAIRLOCK", 16}} },
		"few beside many":      func(p, q *proxy) groups { return groups{{p, "FAIRLOCK", 3}, {p, "LOCK", 24}, {q, "LOCK", 3}} },
		"both at two": func(p, q *proxy) groups {
			return groups{{p, "LOCK", 6}, {p, "FAIRLOCK", 6}, {q, "LOCK", 6}, {q, "FAIRLOCK", 6}}
		},
		"fair here and plain there": func(p, q *proxy) groups { return groups{{p, "FAIRLOCK", 2}, {q, "LOCK", 2}} },
	} {
		t.Run(name, func(t *testing.T) {
			p, q := startProxy(t, srv, onlyWhenTold), startProxy(t, srv, onlyWhenTold)
			crowds := of(p, q)
			clients := 0
			for _, g := range crowds {
				clients += g.clients
			}
			grants := max(8000/clients, 40*clients) // two clients take turns in streaks on a busy machine
			shares, longest := load(t, grants, crowds)
			for i, g := range crowds {
				part := shares[i] * float64(clients) / float64(g.clients)
				t.Logf("%d %s: %.2f of their share", g.clients, g.verb, part)
				if part < 0.8 || part > 1.25 {
					t.Errorf("%d %s got %.2f of their share", g.clients, g.verb, part)
				}
			}
			if longest > 10*max(clients, 12) { // two of them are so fast that a pause of this machine counts
				t.Errorf("somebody waited for %d grants among %d clients", longest, clients)
			}
		})
		srv.Do(t, "FLUSHALL")
	}
}

// Redisson's clients see the plain waiters of a proxy as one waiter, and wake it by name alone.
func TestCrowdTakesTurnsWithRedisson(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, onlyWhenTold)
	a, b, asks := p.session(2), p.session(2), p.session(2)
	j, k := newRedisson(t, srv, 1, "k"), newRedisson(t, srv, 2, "k")
	if got := j.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	for _, w := range []*session{a, b} {
		w.waits("LOCK k")
	}
	p.awaitAttempts("k")
	srv.Do(t, "PUBLISH", script.Channel("k"), "0") // as when another proxy has been faster
	inRedis := func() []string { return srv.Client(t).LRange(t.Context(), script.Queue("k"), 0, -1).Val() }
	var place string
	redistest.Eventually(t, patience, "the place and its subscription", func() bool {
		return p.waitQueue("k", func(q *table.Queue) bool {
			place = q.Names().Place
			return q.Queued() && q.Settled()
		})
	})
	k.fair()
	k.listen(script.NameChannel("k", k.owner))
	equal(t, "queue", inRedis(), []string{place, k.owner})
	if info := asks.do("LOCKINFO k"); !strings.Contains(info, "fair-waiters :1 local-waiters :2") {
		t.Errorf("LOCKINFO: %s", info)
	}
	j.fairRelease()
	fenceIn(t, a.reply()) // long before a lease ends
	if got := k.fair(); got == nil {
		t.Fatal("redisson overtook")
	}
	a.want("UNLOCK k", ":1")
	fenceIn(t, b.reply()) // the same turn
	b.want("UNLOCK k", ":1")
	k.awaitMessage()
	if got := k.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	equal(t, "queue", inRedis(), []string{})
}
