package scatter

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// store is a Redis with a few commands.
type store map[string]string

func (s store) do(args [][]byte) []byte {
	keys := args[1:]
	switch strings.ToLower(string(args[0])) {
	case "mget":
		b := resp.AppendHeader(nil, '*', len(keys))
		for _, k := range keys {
			if v, ok := s[string(k)]; ok {
				b = resp.AppendBulk(b, v)
			} else {
				b = resp.AppendNull(b, 2)
			}
		}
		return b
	case "mset":
		for i := 0; i < len(keys); i += 2 {
			s[string(keys[i])] = string(keys[i+1])
		}
		return []byte(resp.OK)
	}
	n := 0
	for _, k := range keys {
		if _, ok := s[string(k)]; ok {
			n++
			if strings.EqualFold(string(args[0]), "del") {
				delete(s, string(k))
			}
		}
	}
	return resp.AppendInteger(nil, n)
}

// The parts of a command, each carried out by the server of its slot, are as one command at one server.
func TestASplitCommandIsAsAWholeOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, many := store{}, map[int]store{}
		key := rapid.StringMatching(`(\{[ab]\})?[a-d]`)
		for range rapid.IntRange(1, 10).Draw(t, "commands") {
			name := rapid.SampledFrom([]string{"MGET", "mset", "DEL", "Exists", "MSET"}).Draw(t, "name")
			args := [][]byte{[]byte(name)}
			for i := range rapid.IntRange(1, 6).Draw(t, "keys") {
				args = append(args, []byte(key.Draw(t, "key")))
				if strings.EqualFold(name, "mset") {
					args = append(args, []byte(strconv.Itoa(i)))
				}
			}
			want := one.do(args)
			all, join := Split(strings.ToLower(name), args)
			if all == nil {
				all, join = []Part{{resp.AppendCommand(nil, args...), hashslot.Of(args[1])}}, first
			}
			var replies [][]byte
			for _, p := range all {
				if many[p.Slot] == nil {
					many[p.Slot] = store{}
				}
				part := resp.Split(p.Raw, nil)
				step := 1
				if strings.EqualFold(name, "mset") {
					step = 2
				}
				for i := 1; i < len(part); i += step {
					if hashslot.Of(part[i]) != p.Slot {
						t.Fatalf("%q is not of slot %d", part[i], p.Slot)
					}
				}
				replies = append(replies, many[p.Slot].do(part))
			}
			if got := join(replies); !bytes.Equal(got, want) {
				t.Fatalf("%q: %q, want %q", args, got, want)
			}
		}
	})
}

func TestOnlyTheCommandsThatMayBeAreSplit(t *testing.T) {
	for _, line := range []string{"msetnx a 1 b 2", "sinter a b", "mget a", "mget", "mget {x}a {x}b", "rename a b", "mset a"} {
		args := bytes.Fields([]byte(line))
		if all, _ := Split(string(args[0]), args); all != nil {
			t.Errorf("%s is split", line)
		}
	}
	all, _ := Split("mset", bytes.Fields([]byte("mset a 1 b")))
	if len(all) != 1 || len(resp.Split(all[0].Raw, nil)) != 2 {
		t.Error("an MSET without a value is not sent to be refused")
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name, sub string
		replies   []string
		want      string
	}{
		{"dbsize", "", []string{":1\r\n", ":2\r\n"}, ":3\r\n"},
		{"dbsize", "", []string{":1\r\n", "-NOPERM no\r\n"}, "-NOPERM no\r\n"},
		{"flushall", "", []string{"+OK\r\n", "-ERR x\r\n"}, "-CLUSTERDOWN partly carried out: ERR x\r\n"},
		{"flushall", "", []string{"-ERR x\r\n", "-ERR y\r\n"}, "-ERR x\r\n"},
		{"keys", "", []string{"*1\r\n$1\r\na\r\n", "*0\r\n", "*1\r\n$1\r\nb\r\n"}, "*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"script", "exists", []string{"*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"}, "*2\r\n:0\r\n:1\r\n"},
		{"script", "kill", []string{"-NOTBUSY x\r\n", "+OK\r\n"}, "+OK\r\n"},
		{"script", "kill", []string{"-NOTBUSY x\r\n", "-UNKILLABLE y\r\n"}, "-UNKILLABLE y\r\n"},
		{"randomkey", "", []string{"$-1\r\n", "$1\r\na\r\n", "_\r\n"}, "$1\r\na\r\n"},
		{"randomkey", "", []string{"$-1\r\n", "$-1\r\n"}, "$-1\r\n"},
	} {
		var replies [][]byte
		for _, r := range c.replies {
			replies = append(replies, []byte(r))
		}
		if got := string(Everywhere(c.name, c.sub, nil)(replies)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.sub, got, c.want)
		}
	}
	if Everywhere("get", "", nil) != nil || Everywhere("script", "help", nil) != nil {
		t.Error("a command for one server goes everywhere")
	}
}

// scanned follows a cursor through servers with pages of keys, and returns how often each page came. The view changes
// with each step.
func scanned(t testing.TB, views []*topology.View, pages int) map[string]int {
	t.Helper()
	seen, text := map[string]int{}, []byte("0")
	for step := range 100 {
		v := views[min(step, len(views)-1)]
		c, ok := ReadCursor(text, v)
		if !ok {
			t.Fatalf("%q is no cursor", text)
		}
		n, own := c.At(v)
		seen[fmt.Sprint(n.ID, own)]++
		page := resp.AppendHeader(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), strconv.FormatUint((own+1)%uint64(pages), 10)), '*', 0)
		reply, _, err := resp.Decode(c.Follow(v, page))
		if err != nil {
			t.Fatal(err)
		}
		if text = reply.Elems[0].Str; string(text) == "0" {
			return seen
		}
		if n, err := strconv.ParseInt(string(text), 10, 64); err != nil || n <= 0 || n >= 1<<53 {
			t.Fatalf("cursor %q", text)
		}
	}
	t.Fatal("the scan does not end")
	return nil
}

// Redis from 7.4 on has the slot in the lowest 14 bits of its cursor. No other cursor of a client is as large as 2^53,
// from which on floating-point numbers are not exact.
func TestACursorIsExactAsAFloat(t *testing.T) {
	names := make([]string, 256)
	for i := range names {
		names[i] = fmt.Sprintf("n%03d", i)
	}
	v := clustertest.Equal(t, names...)
	page := func(own uint64) []byte {
		return resp.AppendHeader(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), strconv.FormatUint(own, 10)), '*', 0)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Cursor{mark: markOf(v), index: rapid.IntRange(0, len(names)-1).Draw(t, "server")}
		own := rapid.Uint64Range(0, 1<<23-1).Draw(t, "own")<<14 | rapid.Uint64Range(0, 1<<14-1).Draw(t, "slot")
		reply, _, err := resp.Decode(c.Follow(v, page(own)))
		if err != nil {
			t.Fatal(err)
		}
		text := reply.Elems[0].Str
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil || n >= 1<<53 || strconv.FormatFloat(float64(n), 'f', 0, 64) != string(text) {
			t.Fatalf("cursor %q of %d", text, own)
		}
		next, ok := ReadCursor(text, v)
		want := Cursor{mark: c.mark, index: c.index, own: own}
		if own == 0 {
			want.index++
		}
		if end := want.index == len(names); end != (n == 0) || !end && (!ok || next != want) {
			t.Fatalf("%q is %+v, want %+v", text, next, want)
		}
	})
	for _, own := range []uint64{1 << 37, 1 << 60} {
		if got := string(Cursor{mark: markOf(v)}.Follow(v, page(own))); got != "-ERR the cursor of a server is too large\r\n" {
			t.Errorf("%d: %q", own, got)
		}
	}
}

func TestAScanVisitsEachServerOnce(t *testing.T) {
	for _, owners := range [][]string{{"a"}, {"a", "b", "c"}, {"b", "a", "b", "c", "a"}} {
		seen := scanned(t, []*topology.View{clustertest.Equal(t, owners...)}, 3)
		names := map[string]bool{}
		for _, o := range owners {
			names[o] = true
		}
		if len(seen) != 3*len(names) || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
			t.Errorf("%v: %v", owners, seen)
		}
	}
}

// If servers are replaced during a scan, pages may come again. None of a server that is there from the begin to the end
// is left out.
func TestAScanSurvivesChanges(t *testing.T) {
	views := []*topology.View{
		clustertest.Equal(t, "a", "b", "c"), clustertest.Equal(t, "a", "b", "c"), clustertest.Equal(t, "c", "a", "b"), clustertest.Equal(t, "a", "c", "b", "a"), clustertest.Equal(t, "a", "b", "c"), // slots move
		clustertest.Equal(t, "a", "x", "c"), clustertest.Equal(t, "a", "x", "c"), // b fails over
		clustertest.Equal(t, "0", "a", "x", "c"), // a server joins
	}
	seen := scanned(t, views, 3)
	for _, page := range []string{"a0", "a1", "a2", "c0", "c1", "c2", "x0", "x1", "x2"} {
		if seen[page] == 0 {
			t.Errorf("%s is left out: %v", page, seen)
		}
	}
}

func TestInfoIsThatOfAServerThatStandsAlone(t *testing.T) {
	for reply, want := range map[string]string{
		"$44\r\nredis_mode:cluster\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n":     "$53\r\nredis_mode:standalone\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n",
		"=52\r\ntxt:redis_mode:cluster\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n": "=57\r\ntxt:redis_mode:standalone\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n",
		"$2\r\nab\r\n": "$2\r\nab\r\n", "$0\r\n\r\n": "$0\r\n\r\n", "-NOPERM no\r\n": "-NOPERM no\r\n", "+QUEUED\r\n": "+QUEUED\r\n",
	} {
		if got := string(Info([]byte(reply))); got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}

func TestReportsAreOfOneServer(t *testing.T) {
	for _, line := range []string{
		"info", "slowlog get", "slowlog len", "acl log", "acl log 5", "latency latest", "latency history x", "memory stats", "memory usage k",
	} {
		args := bytes.Fields([]byte(line))
		if Everywhere(string(args[0]), string(append(args, nil)[1]), args) != nil {
			t.Errorf("%s goes everywhere", line)
		}
	}
	for _, line := range []string{"slowlog reset", "acl log RESET", "latency reset", "memory purge"} {
		args := bytes.Fields([]byte(line))
		if Everywhere(string(args[0]), string(args[1]), args) == nil {
			t.Errorf("%s goes to one server", line)
		}
	}
}
