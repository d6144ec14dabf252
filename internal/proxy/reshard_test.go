package proxy

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tagged are keys of one slot, which no other test uses.
func tagged(t *testing.T, c *redistest.Cluster, tag string, n int) (slot int, keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("{%s}%d", tag, i))
	}
	return int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", tag).(int64)), keys
}

// migrate moves one key of a slot that is on its way.
func migrate(t *testing.T, way redistest.Move, key string) {
	host, port, _ := strings.Cut(way.To.Addr(), ":")
	way.From.Do(t, "MIGRATE", host, port, key, 0, 5000)
}

// A pipeline concerns many keys of a slot, some of which are at the old server and some at the new one.
func pipelinesCrossAHalfMovedSlot(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		slot, keys := tagged(t, c, "half"+engine, 20)
		p, m := dialClient(t, address(srv)), newMover(t, c)
		home := m.owner[slot]
		round := 0
		pipeline := func() {
			t.Helper()
			round++
			for range 5 {
				for _, key := range keys {
					p.send("INCR", key)
					p.send("GET", key)
				}
			}
			for i := range 5 {
				for _, key := range keys {
					n := fmt.Sprint((round-1)*5 + i + 1)
					for _, want := range []string{":" + n + "\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(n), n)} {
						if got, err := p.frame(); got != want || err != nil {
							t.Fatalf("%s: %s: %q (%v), want %q", engine, key, got, err, want)
						}
					}
				}
			}
		}
		for _, to := range []int{(home + 1) % 3, home} {
			pipeline()
			way := m.to(slot, to)
			way.Begin()
			for _, key := range keys {
				pipeline()
				migrate(t, way, key)
			}
			pipeline()
			m.end(slot, to)
		}
		pipeline()
	}
}

// Clients use the keys of a slot in pipelines while the slot moves to another server and back.
func pipelinesCrossAMovingSlot(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	const clients, keys = 3, 40
	var wg sync.WaitGroup
	stop := make(chan struct{})
	tag := "moving"
	slot, all := tagged(t, c, tag, clients*len(proxies)*keys)
	began := make(chan struct{}, clients*len(proxies))
	rest := all
	for _, srv := range proxies {
		for range clients {
			p, mine := dialClient(t, address(srv)), rest[:keys]
			rest = rest[keys:]
			wg.Go(func() {
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					case began <- struct{}{}:
					default:
					}
					for _, key := range mine {
						p.send("INCR", key)
						p.send("SET", key+"s", fmt.Sprint(n))
						p.send("GET", key+"s")
					}
					for _, key := range mine {
						number := fmt.Sprint(n)
						for _, want := range []string{":" + number + "\r\n", "+OK\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(number), number)} {
							if got, err := p.frame(); got != want || err != nil {
								t.Errorf("%s: %q (%v), want %q", key, got, err, want)
								return
							}
						}
					}
				}
			})
		}
	}
	for range clients * len(proxies) {
		<-began
	}
	m := newMover(t, c)
	home := m.owner[slot]
	for _, to := range []int{(home + 1) % 3, home} {
		way := m.to(slot, to)
		way.Begin()
		for i, key := range all {
			migrate(t, way, key)
			if i%2 == 0 {
				migrate(t, way, key+"s")
			}
		}
		m.keys(slot, to)
		m.end(slot, to)
	}
	close(stop)
	wg.Wait()
}
