package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A watched slot moves, or is about to. The client gets no redirection, its commands follow the slot, and its transaction finds its keys changed: the old
// server could not tell.
func aWatchedSlotMoves(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	const from, to = 0, 1
	type watcher struct {
		*proxytest.Client
		key, line string
	}
	m := newMover(t, c)
	var moved []int
	n := 0
	for _, stage := range []string{"half moved", "moved", "moved and seen"} {
		var watchers []watcher
		var slots []int
		for _, line := range []string{
			"GET @|$1\r\n1\r\n", "MGET @|*1\r\n$1\r\n1\r\n", "EVAL return{redis.call('GET',KEYS[1])} 1 @|*1\r\n$1\r\n1\r\n", "SET @ 1|+OK",
			"WATCH {@}late|+OK", "BLPOP {@}list 1|-CROSSSLOT ", "PING|+PONG",
		} {
			key, slot := "", 0
			for ; key == "" || m.owner[slot] != from; n++ {
				key = fmt.Sprint("watched", n)
				slot = int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
			}
			p := srv.Dial(t)
			p.Script("SET "+key+" 1", "+OK", "SET {"+key+"}late 1", "+OK", "RPUSH {"+key+"}list x", ":1", "WATCH "+key, "+OK")
			watchers = append(watchers, watcher{p, key, line})
			slots = append(slots, slot)
		}
		var last redistest.Move
		for _, slot := range slots {
			m.begin(slot, to)
			m.keys(slot, to)
			if stage != "half moved" {
				last = m.tell(slot, to)
			}
		}
		if stage == "moved and seen" {
			p := srv.Dial(t)
			proxytest.WaitFor(t, "the new view", func() bool {
				p.Quiet("MGET", watchers[0].key, watchers[len(watchers)-1].key)
				return srv.Shared().Upstream.View().Owner(slots[0]).ID == c.ID(c.Nodes[to]) && srv.Shared().Upstream.View().Owner(slots[len(slots)-1]).ID == c.ID(c.Nodes[to])
			})
		}
		for _, w := range watchers {
			t.Run(stage+" "+w.line, func(t *testing.T) {
				w.Client.T = t
				w.Script(strings.Split(strings.ReplaceAll(w.line, "@", w.key), "|")...)
				w.Script("MULTI", "+OK", "PING", "+QUEUED", "GET "+w.key, "+QUEUED", "EXEC", "*-1", "GET "+w.key, "$1\r\n1\r\n", "MULTI", "+OK", "PING", "+QUEUED", "EXEC", "*1")
			})
		}
		if stage == "half moved" {
			for _, slot := range slots {
				last = m.tell(slot, to)
			}
		}
		moved = append(moved, slots...)
		last.Await()
	}
	m.moveAll(moved, to, from)
	keys := neighboursAt(t, c, c.Nodes[0], 2)
	p := srv.Dial(t)
	p.Script("WATCH "+keys[0], "+OK", "WATCH "+keys[1], "-CROSSSLOT ", "MULTI", "+OK", "SET "+keys[1]+" x", "-CROSSSLOT ", "EXEC", "-EXECABORT ")
}
