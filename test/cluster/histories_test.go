package cluster

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A writer appends numbers to lists that nobody else writes, in random pipelines over all shards. So the lists tell which commands were carried out, and in
// which order.
type writer struct {
	*proxytest.Client
	t     testing.TB
	srv   *proxytest.Proxy
	keys  []string // one for each slot that moves
	last  int
	sent  []appending
	acked map[int]bool
	lost  map[int]string // refused: the reply
}

// appending is a command of a pipeline. A transaction writes two lists.
type appending struct{ n, replies int }

func newWriter(t testing.TB, srv *proxytest.Proxy, tags []string, id int) *writer {
	w := &writer{Client: srv.Dial(t), t: t, srv: srv, acked: map[int]bool{}, lost: map[int]string{}}
	for _, tag := range tags {
		w.keys = append(w.keys, fmt.Sprintf("{%s}%d", tag, id))
	}
	return w
}

// pipeline sends some commands, and reads their replies.
func (w *writer) pipeline() {
	w.sent = w.sent[:0]
	var all []byte
	for range 1 + rand.IntN(30) {
		w.last++
		key, n := w.keys[rand.IntN(len(w.keys))], strconv.Itoa(w.last)
		lines := []string{"RPUSH " + key + " " + n}
		switch rand.IntN(8) {
		case 0:
			lines = []string{"MULTI", lines[0], "PING", "RPUSH " + key + "too " + n, "EXEC"}
		case 1:
			lines = []string{"EVAL return(redis.call('RPUSH',KEYS[1],ARGV[1])) 1 " + key + " " + n}
		}
		w.sent = append(w.sent, appending{w.last, len(lines)})
		for _, line := range lines {
			all = resp.AppendCommand(all, strings.Fields(line)...)
		}
	}
	if _, err := w.Conn.Write(all); err != nil {
		w.Client = w.srv.Dial(w.t)
		return
	}
	for _, one := range w.sent {
		got := ""
		for range one.replies {
			var err error
			if got, err = w.Frame(); err != nil { // its server has died: nobody knows what has run
				w.Client = w.srv.Dial(w.t)
				return
			}
		}
		if w.acked[one.n] = got[0] != '-'; got[0] == '-' {
			w.lost[one.n] = got
		}
	}
}

// check compares the lists with what the client was told. durable: no server has lost what it has acknowledged.
func (w *writer) check(durable bool) {
	w.Client = w.srv.Dial(w.t)
	found := map[int]bool{}
	for _, key := range w.keys {
		for _, list := range []string{key, key + "too"} {
			before := 0
			for _, n := range w.list(list) {
				switch {
				case n == before:
					w.t.Errorf("%s: command %d was carried out twice", list, n)
				case n < before:
					w.t.Errorf("%s: command %d was carried out behind %d", list, n, before)
				case w.lost[n] != "":
					w.t.Errorf("%s: command %d was carried out, and answered %q", list, n, w.lost[n])
				case list != key && !found[n] && durable:
					w.t.Errorf("%s: transaction %d was carried out in part", list, n)
				}
				before, found[n] = n, true
			}
		}
	}
	for n, done := range w.acked {
		if done && !found[n] && durable {
			w.t.Errorf("command %d is lost", n)
		}
	}
	for n, reply := range w.lost {
		if durable {
			w.t.Errorf("command %d: %q", n, reply)
		}
	}
}

func (w *writer) list(key string) (all []int) {
	lines := strings.Split(w.Quiet("LRANGE", key, "0", "-1"), "\r\n")
	for i := 2; i < len(lines); i += 2 {
		n, _ := strconv.Atoi(lines[i])
		all = append(all, n)
	}
	return all
}

// Clients write in pipelines over three shards while slots move key by key, and primaries hand over to their replicas, or die. The effects on each key keep
// their order, nothing is carried out twice, and nothing that was refused.
func TestEffectsOnEachKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, deaths := range []bool{false, true} {
		t.Run(fmt.Sprint("deaths=", deaths), func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
			tags := []string{"a", "b", "c", "d", "e", "f"}
			var writers []*writer
			var clients proxytest.Meanwhile
			for _, srv := range proxytest.StartOverCluster(t, c, proxytest.Patient) {
				for range 3 {
					w := newWriter(t, srv, tags, len(writers))
					writers = append(writers, w)
					clients.Go(func(int) bool {
						w.pipeline()
						return true
					})
				}
			}
			for shard := range 3 {
				for range 4 {
					moveOne(t, c, tags[rand.IntN(len(tags))])
				}
				primary, replica := c.Nodes[shard], c.Nodes[3+shard]
				if !deaths {
					c.Failover(replica)
					continue
				}
				primary.AwaitReplicas(t, 1)
				slot := redistest.Slots/3*shard + 1
				primary.Kill()
				c.AwaitOwner(slot, replica, c.Nodes[shard+1:]...) // all that are left: each may have to move a slot to it
			}
			clients.End()
			total, refused := 0, 0
			for _, w := range writers {
				w.check(!deaths)
				total, refused = total+w.last, refused+len(w.lost)
			}
			t.Logf("%d commands, %d refused", total, refused)
		})
	}
}

// moveOne moves the slot of a key to another primary, with pauses in which its keys are at both servers.
func moveOne(t *testing.T, c *redistest.Cluster, key string) {
	way := redistest.Move{Cluster: c, Slot: hashslot.Of([]byte(key))}
	way.From = c.Owner(way.Slot)
	for i := range hashslot.Count {
		if way.To = c.Owner((way.Slot + i*997) % hashslot.Count); way.To != way.From {
			break
		}
	}
	way.Begin()
	keys, _ := way.From.Do(t, "CLUSTER", "GETKEYSINSLOT", way.Slot, 100).([]any)
	for _, one := range keys {
		migrate(t, way, one.(string))
		time.Sleep(time.Millisecond) // the fault: it takes so long
	}
	way.Keys()
	way.End()
}
