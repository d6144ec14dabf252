package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// world is two servers that carry out what a client sends, while a slot moves between them, key by key.
type world struct {
	*twoServers
	slot    int
	keys    []string
	queues  map[topology.Node][]sending
	owner   topology.Node
	moving  bool                     // away from the owner
	moved   bool                     // it has moved since nothing was on its way
	at      map[string]topology.Node // where each key is
	loading map[topology.Node]bool
	done    map[string][]int // the commands that were carried out, by key
	asked   int
}

func other(at topology.Node) topology.Node {
	if at == "a" {
		return "b"
	}
	return "a"
}

// send has the client send a command of a key, as a session does.
func (w *world) send(key string) {
	if w.s.out.Slots.Due() > 0 && w.way.Outdated() {
		return
	}
	w.asked++
	w.ask(encoded(fmt.Sprintf("APPEND %s %d", key, w.asked)))
	w.collect()
}

// collect hands to the servers what has been sent to them.
func (w *world) collect() {
	for _, one := range w.take() {
		w.queues[one.at] = append(w.queues[one.at], one)
	}
}

// serve has a server answer its next command.
func (w *world) serve(t *rapid.T, at topology.Node) {
	if len(w.queues[at]) == 0 {
		return
	}
	next := w.queues[at][0]
	w.queues[at] = w.queues[at][1:]
	raw, asking := strings.CutPrefix(next.raw, string(command.Asking))
	reply := w.reply(t, at, resp.Split([]byte(raw), nil), asking)
	if asking {
		reply = "+OK\r\n" + reply
	}
	w.answer(next, reply)
	w.collect()
}

func (w *world) reply(t *rapid.T, at topology.Node, args [][]byte, asking bool) string {
	key := string(args[1])
	switch mine := w.owner == at; {
	case w.loading[at]:
		return "-LOADING Redis is loading the dataset in memory\r\n"
	case mine && w.at[key] != at:
		return fmt.Sprintf("-ASK %d %s\r\n", w.slot, address[other(at)])
	case !mine && !(asking && w.moving):
		return fmt.Sprintf("-MOVED %d %s\r\n", w.slot, address[w.owner])
	case w.at[key] != at:
		t.Fatalf("%s is made anew at %s", key, at)
	}
	var n int
	_, _ = fmt.Sscan(string(args[2]), &n)
	w.done[key] = append(w.done[key], n)
	return fmt.Sprintf(":%d\r\n", n)
}

var address = map[topology.Node]string{"a": "h:1", "b": "h:2"}

// refresh has the client learn the owner of the slot.
func (w *world) refresh(*rapid.T) {
	v := clustertest.Split(w.twoServers.t, 1) // a primary without slots is none that clustertest makes
	if w.owner == "a" {
		v = clustertest.Split(w.twoServers.t, hashslot.Count/2)
	}
	w.refreshed(v)
	w.collect()
}

// begin has the slot move. It comes back when nothing is on its way from before, and the client has a view of that
// time.
func (w *world) begin(t *rapid.T) {
	if w.moved && w.s.out.Slots.Due() == 0 {
		w.moved = false
		w.refresh(t)
	}
	w.moving = !w.moved
}

// end has the slot moved as a whole.
func (w *world) end(*rapid.T) {
	if !w.moving {
		return
	}
	w.moved = true
	for _, key := range w.keys {
		w.at[key] = other(w.owner)
	}
	w.owner, w.moving = other(w.owner), false
}

// The commands of each key are carried out once, in their order, however the slot moves. No command is given up because
// of a move.
func TestEachKeyKeepsItsOrder(t *testing.T) {
	socket := greeter(t, "-ERR refused\r\n")
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(r *rapid.T) {
			c, end := newTwoServers(t, socket)
			defer end()
			keysKeepTheirOrder(r, c)
		})
	})
}

func keysKeepTheirOrder(t *rapid.T, c *twoServers) {
	w := &world{
		twoServers: c, queues: map[topology.Node][]sending{}, owner: "a", at: map[string]topology.Node{},
		loading: map[topology.Node]bool{}, done: map[string][]int{},
	}
	tag := "{" + w.low() + "}"
	w.slot = hashslot.Of([]byte(tag))
	for i := range 3 {
		w.keys = append(w.keys, fmt.Sprint(tag, i))
		w.at[w.keys[i]] = "a"
	}
	loads := rapid.Bool().Draw(t, "a server loads its data")
	key, server := rapid.SampledFrom(w.keys), rapid.SampledFrom([]topology.Node{"a", "b"})
	t.Repeat(map[string]func(*rapid.T){
		"send":  func(t *rapid.T) { w.send(key.Draw(t, "key")) },
		"send2": func(t *rapid.T) { w.send(key.Draw(t, "key")) },
		"serve": func(t *rapid.T) { w.serve(t, server.Draw(t, "server")) },
		"begin": w.begin,
		"move": func(t *rapid.T) {
			if w.moving {
				w.at[key.Draw(t, "key")] = other(w.owner)
			}
		},
		"end":     w.end,
		"refresh": w.refresh,
		"load": func(t *rapid.T) {
			at := server.Draw(t, "server")
			w.loading[at] = loads && !w.loading[at]
		},
	})
	clear(w.loading)
	for range 1000 {
		if w.s.out.Slots.Due() == 0 {
			break
		}
		w.serve(t, "a")
		w.serve(t, "b")
		if len(w.queues["a"])+len(w.queues["b"]) == 0 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			w.refresh(t)
		}
	}
	answered := map[string]bool{}
	for line := range strings.Lines(w.got.String()) {
		if strings.HasPrefix(line, "-") && !loads {
			t.Errorf("an error: %q", line)
		}
		answered[line] = true
	}
	for key, list := range w.done {
		for i, n := range list {
			if i > 0 && n <= list[i-1] {
				t.Errorf("%s: %v", key, list)
			}
			if !answered[fmt.Sprintf(":%d\r\n", n)] {
				t.Errorf("command %d was carried out, and the client was told something else", n)
			}
			delete(answered, fmt.Sprintf(":%d\r\n", n))
		}
	}
	if n := strings.Count(w.got.String(), "\n"); n != w.asked || w.way.Bytes() != 0 || w.way.Pauses() {
		t.Errorf("%d commands have %d replies; %d bytes are kept; pause: %v", w.asked, n, w.way.Bytes(), w.way.Pauses())
	}
}
