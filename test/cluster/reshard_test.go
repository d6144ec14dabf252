package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tagged are keys of one slot, which no other test uses.
func tagged(t *testing.T, c *redistest.Cluster, tag string, n int) (slot int, keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("{%s}%d", tag, i))
	}
	return int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", tag).(int64)), keys
}

// migrate moves keys of a slot that is on its way.
func migrate(t *testing.T, way redistest.Move, keys ...string) {
	host, port, _ := strings.Cut(way.To.Addr(), ":")
	for _, key := range keys {
		way.From.Do(t, "MIGRATE", host, port, key, 0, 5000)
	}
}

// away is the move of the slot of a key to another one of the first two servers.
func away(c *redistest.Cluster, key string) redistest.Move {
	m := redistest.Move{Cluster: c, Slot: hashslot.Of([]byte(key)), To: c.Nodes[0]}
	if m.From = c.Owner(m.Slot); m.From == m.To {
		m.To = c.Nodes[1]
	}
	return m
}

// A pipeline concerns many keys of a slot, some of which are at the old server and some at the new one.
func pipelinesCrossAHalfMovedSlot(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	slot, keys := tagged(t, c, "half", 20)
	p, m := srv.Dial(t), newMover(t, c)
	home := m.owner[slot]
	round := 0
	pipeline := func() {
		t.Helper()
		round++
		for range 5 {
			for _, key := range keys {
				p.Send("INCR", key)
				p.Send("GET", key)
			}
		}
		for i := range 5 {
			for range keys {
				n := fmt.Sprint((round-1)*5 + i + 1)
				p.Gets(":"+n+"\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(n), n))
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

// A client waits for entries of a stream for its group. Redis tells it that the key is gone, when the key is moved and when it is deleted.
func aReaderFollowsItsStream(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	for _, end := range []string{"half moved", "moved", "deleted"} {
		slot, keys := tagged(t, c, "stream"+end, 1)
		key := keys[0]
		other, p := srv.Dial(t), srv.Dial(t)
		other.Quiet("XGROUP", "CREATE", key, "g", "$", "MKSTREAM")
		m := newMover(t, c)
		home, to := m.owner[slot], (m.owner[slot]+1)%3
		p.Send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", key, ">")
		proxytest.AwaitBlocked(t, 1, c.Nodes[home])
		want := fmt.Sprintf("*1\r\n*2\r\n$%d\r\n%s\r\n", len(key), key) + "*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
		entry := []string{"XADD", key, "1-1", "f", "v"}
		way := m.to(slot, to)
		switch end {
		case "half moved":
			way.Begin()
			migrate(t, way, key)
			other.Quiet(entry...)
		case "moved":
			m.move(slot, to)
			other.Quiet(entry...)
		case "deleted":
			direct := proxytest.Dial(t, c.Nodes[home].Addr())
			direct.Send("XREADGROUP", "GROUP", "g", "you", "BLOCK", "0", "STREAMS", key, ">")
			proxytest.AwaitBlocked(t, 2, c.Nodes[home])
			other.Quiet("DEL", key)
			want, _ = direct.Frame() // the words depend on the version
		}
		if got, err := p.Frame(); got != want || err != nil {
			t.Errorf("%s: %q (%v), want %q", end, got, err, want)
		}
		if end == "half moved" {
			m.keys(slot, to)
			m.end(slot, to)
		}
		m.move(slot, home)
	}
}
