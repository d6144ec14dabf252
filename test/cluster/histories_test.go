package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	other string         // a refusal of a command that appends nothing
}

// appending is the commands of a pipeline that append a number. The last of them says whether it was carried out.
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
		switch rand.IntN(24) {
		case 0, 1, 2:
			lines = []string{"MULTI", lines[0], "PING", "RPUSH " + key + "too " + n, "EXEC"}
		case 3, 4, 5:
			lines = []string{"EVAL return(redis.call('RPUSH',KEYS[1],ARGV[1])) 1 " + key + " " + n}
		case 6:
			lines = []string{"EXISTS " + strings.Join(w.keys, " "), lines[0]}
		case 7:
			lines = []string{"RPUSH " + key + "wait " + n, "BLPOP " + key + "wait 9", lines[0]}
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
			if got[0] == '-' || got == "*-1\r\n" {
				w.other = got
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
	if durable && (len(w.lost) > 0 || w.other != "") {
		w.t.Errorf("refused: %v, %q", w.lost, w.other)
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

// startWriters has clients write keys of these tags until end, which checks what they were told.
func startWriters(t testing.TB, srv *proxytest.Proxy, tags ...string) (end func(durable bool)) {
	var writers []*writer
	var clients proxytest.Meanwhile
	for id := range 3 {
		w := newWriter(t, srv, tags, id)
		writers = append(writers, w)
		clients.Go(func(int) bool {
			w.pipeline()
			return true
		})
	}
	return func(durable bool) {
		t.Helper()
		clients.End()
		total, refused := 0, 0
		for _, w := range writers {
			w.check(durable)
			total, refused = total+w.last, refused+len(w.lost)
		}
		t.Logf("%d commands, %d refused", total, refused)
	}
}

// Clients write in pipelines over three shards while slots move key by key, and primaries hand over to their replicas, or die. The effects on each key keep
// their order, nothing is carried out twice, and nothing that was refused. A scan finds all keys of the slots that stay.
func TestEffectsOnEachKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, deaths := range []bool{false, true} {
		t.Run(fmt.Sprint("deaths=", deaths), func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
			srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
			tags := []string{"a", "b", "c", "d", "e", "f"}
			if !deaths {
				defer scanWhile(t, srv, func(slot int) bool {
					return !slices.ContainsFunc(tags, func(tag string) bool { return hashslot.Of([]byte(tag)) == slot })
				})()
			}
			written := startWriters(t, srv, tags...)
			for shard := range 3 {
				for range 8 {
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
			written(!deaths)
		})
	}
}

// scanWhile scans keys of slots that stay, over and over, until end. Each scan finds all of them.
func scanWhile(t *testing.T, srv *proxytest.Proxy, in func(slot int) bool) (end func()) {
	p := srv.Dial(t)
	const keys = 1200
	for i, n := 0, 0; n < keys; i++ {
		if key := fmt.Sprint("scanned:", i); in(hashslot.Of([]byte(key))) {
			p.Send("SET", key, "x")
			n++
		}
	}
	for range keys {
		p.Gets("+OK")
	}
	var scans proxytest.Meanwhile
	scans.Go(func(n int) bool {
		found := map[string]bool{}
		for cursor := "0"; ; {
			lines := strings.Split(p.Quiet("SCAN", cursor, "MATCH", "scanned:*", "COUNT", "200"), "\r\n")
			if len(lines) < 5 {
				t.Errorf("SCAN %s: %q", cursor, lines)
				return false
			}
			for i := 5; i < len(lines); i += 2 {
				found[lines[i]] = true
			}
			if cursor = lines[2]; cursor == "0" {
				break
			}
		}
		if len(found) != keys {
			t.Errorf("scan %d has found %d keys of %d", n, len(found), keys)
		}
		return true
	})
	return scans.End
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
