package clients

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	line7 = "id=7 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=8 name=x age=9 idle=1 flags=P db=2 sub=1 psub=2 ssub=0 multi=-1 qbuf=0 " +
		"qbuf-free=0 argv-mem=0 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 tot-mem=1800 events=r cmd=subscribe user=bob redir=-1 resp=3"
	line72 = line7 + " lib-name=redis-py lib-ver=5.0"
	line81 = line72 + " tot-net-in=5 tot-net-out=6 tot-cmds=7"
)

func TestFieldsOfALine(t *testing.T) {
	for _, c := range []struct{ line, name, want string }{
		{line7, "id", "7"},
		{line7, "addr", "127.0.0.1:5000"},
		{line7, "sub", "1"},
		{line7, "resp", "3"},
		{line7, "lib-name", ""},
		{line72, "lib-ver", "5.0"},
		{"id=3 addr=/tmp/my dir/s:0 laddr=/tmp/my dir/s:0 name= fd=1", "addr", "/tmp/my dir/s:0"},
		{"id=3 addr=/tmp/my dir/s:0 laddr=/tmp/my dir/s:0 name= fd=1", "laddr", "/tmp/my dir/s:0"},
		{"id=3 addr=/tmp/my dir/s:0 laddr=/tmp/my dir/s:0 name= fd=1", "name", ""},
		{"id=3 name=addr=4 addr=5", "addr", "5"},
		{"", "id", ""},
		{"id", "id", ""},
		{"=", "", ""},
	} {
		if got := string(Line(c.line).Field(c.name)); got != c.want {
			t.Errorf("%q: %s is %q, want %q", c.line, c.name, got, c.want)
		}
	}
}

// A client is shown with the fields of Redis's version, in their order, and with Redis's word where the proxy has none.
func TestInfoHasRedisShape(t *testing.T) {
	c := Info{
		ID: 1 << 52, Addr: "10.0.0.1:99", LAddr: "10.0.0.2:7379", FD: 5, Name: "me", Age: 3, Idle: 2, DB: 1, User: "alice", Resp: 2, Cmd: "get",
		LibName: "go-redis", LibVer: "9", Multi: -1, Total: 100,
	}
	const plain = "id=4503599627370496 addr=10.0.0.1:99 laddr=10.0.0.2:7379 fd=5 name=me age=3 idle=2 flags=N db=1 sub=0 psub=0 ssub=0 multi=-1 qbuf=0 " +
		"qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=1124 events=r cmd=get user=alice redir=-1 resp=2"
	for _, test := range []struct {
		name        string
		shape, own  string
		want        string
		replacement []string
	}{
		{"7.0", line7, "", plain, nil},
		{"7.2", line72, "", plain + " lib-name=go-redis lib-ver=9", nil},
		{"a version that shows more", line81, "", plain + " lib-name=go-redis lib-ver=9 tot-net-in=0 tot-net-out=0 tot-cmds=0", nil},
		{"with a connection of its own", line81, line81, plain + " lib-name=go-redis lib-ver=9 tot-net-in=5 tot-net-out=6 tot-cmds=7", []string{"flags=N", "flags=P", "sub=0 psub=0", "sub=1 psub=2"}},
	} {
		want := strings.NewReplacer(test.replacement...).Replace(test.want)
		var own Line
		if test.own != "" {
			own = Line(test.own)
		}
		if diff := cmp.Diff(want, string(c.Append(nil, ShapeOf([]byte(test.shape+"\nid=8\n")), own))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		c    Info
		own  string
		want string
	}{
		{Info{Multi: -1}, "", "N"},
		{Info{Multi: -1, Unix: true}, "", "U"},
		{Info{Multi: -1}, "flags=U", "N"}, // the proxy's connection is by a unix socket
		{Info{Multi: -1, Unix: true}, "flags=N", "U"},
		{Info{Multi: 0}, "", "x"},
		{Info{Multi: -1, Waits: true}, "", "b"},
		{Info{Multi: -1, Closes: true, Unix: true}, "flags=tBe", "tBcUe"},
		{Info{Multi: -1, Subs: 1}, "", "P"},
		{Info{Multi: -1, Monitors: true}, "", "O"},
		{Info{Multi: -1, Replicates: true}, "", "S"},
		{Info{Multi: -1, Waits: true}, "flags=zP", "Pbz"},
	} {
		var own Line
		if test.own != "" {
			own = Line(test.own)
		}
		if got := test.c.flags(own); got != test.want {
			t.Errorf("%+v with %q: %s, want %s", test.c, test.own, got, test.want)
		}
	}
}

func words(line string) [][]byte { return bytes.Fields([]byte(line)) }

// Whatever is asked, what Redis gets kills no client: the filter has an address that no client has, and it is the last
// one.
func TestHarmlessKillsNobody(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "CLIENT KILL"},
		{"1.2.3.4:5", "CLIENT KILL " + noClient},
		{"TYPE normal", "CLIENT KILL ADDR " + noClient + " TYPE normal"},
		{"ADDR 1.2.3.4:5", "CLIENT KILL ADDR " + noClient + " ADDR " + noClient},
		{"addr 1.2.3.4:5 skipme no Addr 6", "CLIENT KILL ADDR " + noClient + " addr " + noClient + " skipme no Addr " + noClient},
		{"USER addr ADDR 1.2.3.4:5", "CLIENT KILL ADDR " + noClient + " USER addr ADDR " + noClient},
		{"ID 1 2 3 ADDR 4", "CLIENT KILL ADDR " + noClient + " ID 1 2 3 ADDR " + noClient},
		{"ID 10 wrong_arg", "CLIENT KILL ADDR " + noClient + " ID 10 wrong_arg"},
		{"ID 10 ADDR", "CLIENT KILL ADDR " + noClient + " ID 10 ADDR"},
		{"wrong 1 ADDR 2", "CLIENT KILL ADDR " + noClient + " wrong 1 ADDR " + noClient},
	} {
		var got []string
		for line := range strings.Lines(string(Harmless(words(test.args)))) {
			if line = strings.TrimSpace(line); line[0] != '*' && line[0] != '$' {
				got = append(got, line)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %s, want %s", test.args, got, test.want)
		}
	}
}

func TestParse(t *testing.T) {
	a, u := "1.2.3.4:5", "bob"
	for _, test := range []struct {
		parse func(args [][]byte) (Filter, bool)
		args  string
		want  *Filter
	}{
		{ParseKill, "1.2.3.4:5", &Filter{Addr: &a, Old: true}},
		{ParseKill, "ID 7", &Filter{IDs: []uint64{7}, SkipMe: true}},
		{ParseKill, "ID 9 ID 7", &Filter{IDs: []uint64{7}, SkipMe: true}}, // the last one counts
		{ParseKill, "ID 9 8 7 SKIPME no", &Filter{IDs: []uint64{9, 8, 7}}},
		{ParseKill, "type SLAVE user bob maxage 30", &Filter{Type: Replica, User: &u, MaxAge: 30, SkipMe: true}},
		{ParseKill, "LADDR 1.2.3.4:5 ADDR 1.2.3.4:5", &Filter{LAddr: &a, Addr: &a, SkipMe: true}},
		{ParseKill, "NAME x", nil},
		{ParseKill, "TYPE novel", nil},
		{ParseKill, "ID 1 x", nil},
		{ParseKill, "ID -1 8", &Filter{IDs: []uint64{8}, SkipMe: true}},
		{ParseKill, "MAXAGE x", nil},
		{ParseList, "", &Filter{}},
		{ParseList, "ID 9 7 9", &Filter{IDs: []uint64{9, 7, 9}}},
		{ParseList, "TYPE normal USER bob", &Filter{Type: Normal, User: &u}},
		{ParseList, "SKIPME yes", &Filter{SkipMe: true}},
		{ParseList, "NAME x", nil},
		{ParseList, "x", nil},
	} {
		got, ok := test.parse(words(test.args))
		if ok != (test.want != nil) {
			t.Errorf("%s: %v", test.args, ok)
		}
		if test.want != nil {
			if diff := cmp.Diff(*test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.args, diff)
			}
		}
	}
}

func TestFilterMatches(t *testing.T) {
	c := Info{ID: 7, Addr: "127.0.0.1:5000", LAddr: "127.0.0.1:6379", User: "bob", Age: 9, Subs: 1, Multi: -1}
	for args, want := range map[string]bool{
		"127.0.0.1:5000": true, "127.0.0.1:50": false, "TYPE pubsub": true, "TYPE normal": false, "TYPE replica": false, "TYPE master": false, "USER bob": true, "USER bo": false,
		"LADDR 127.0.0.1:6379": true, "LADDR 127.0.0.1:5000": false, "MAXAGE 9": true, "MAXAGE 10": false, "SKIPME no": true,
		"ADDR 127.0.0.1:5000 TYPE pubsub USER bob": true, "ADDR 127.0.0.1:5001 TYPE pubsub USER bob": false,
	} {
		f, _ := ParseKill(words(args))
		if got := f.Match(&c); got != want {
			t.Errorf("%s matches: %v", args, got)
		}
	}
	if replica := (Info{Replicates: true, Multi: -1}); replica.Type() != Replica {
		t.Errorf("a replica has the type %d", replica.Type())
	}
}

func TestCountsAreEdited(t *testing.T) {
	const info = "# Server\r\nconnected_clients:9\r\n\r\n# Clients\r\nconnected_clients:9\r\ncluster_connections:0\r\nblocked_clients:2\r\n\r\n# Memory\r\nused_memory:1\r\n"
	const want = "# Server\r\nconnected_clients:9\r\n\r\n# Clients\r\nconnected_clients:100\r\ncluster_connections:0\r\nblocked_clients:5\r\n\r\n# Memory\r\nused_memory:1\r\n"
	c := Counts{Clients: 100, Waiting: 3}
	for like, text := range map[string]string{"$": "", "=": "txt:"} {
		reply := func(body string) string { return fmt.Sprintf("%s%d\r\n%s%s\r\n", like, len(text+body), text, body) }
		if got := string(c.Edit([]byte(reply(info)))); got != reply(want) {
			t.Errorf("%q, want %q", got, reply(want))
		}
		for _, same := range []string{"", "# Memory\r\nconnected_clients:1\r\n", "x# Clients\r\nconnected_clients:1\r\n"} {
			if got := string(c.Edit([]byte(reply(same)))); got != reply(same) {
				t.Errorf("%q became %q", same, got)
			}
		}
	}
	for _, same := range []string{"-NOPERM no\r\n", "+QUEUED\r\n", "$-1\r\n", "=2\r\nxy\r\n"} {
		if got := string(c.Edit([]byte(same))); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}

func TestCounted(t *testing.T) {
	for args, want := range map[string]bool{"": true, "clients": true, "server CLIENTS": true, "All": true, "everything": true, "default": true, "server memory": false, "lockproxy": false} {
		if got := Counted(words(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
}

func TestIDsAreTheProxys(t *testing.T) {
	a := NewIDs()
	last := uint64(0)
	for range 1000 {
		id := a.Next()
		if id <= last || id < firstID || id >= endID || uint64(float64(id)) != id {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
}

// numbered is a client.
type numbered uint64

func (n numbered) Describe() (Info, bool) { return Info{ID: uint64(n)}, true }
func (numbered) KillIf(func(*Info) bool)  {}

func TestDirectory(t *testing.T) {
	var d Directory
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				id := uint64(i*500 + j)
				d.Put(id, numbered(id))
				d.Put(id, numbered(id))
				if j%2 == 0 {
					d.Remove(id)
					d.Remove(id)
				}
				for range d.Each(nil) {
				}
			}
		})
	}
	wg.Wait()
	all := slices.Collect(d.Each(nil))
	if len(all) != 2000 || d.Len() != 2000 || all[0] != numbered(1) || all[1999] != numbered(3999) {
		t.Errorf("%d of %d, from %d to %d", len(all), d.Len(), all[0], all[len(all)-1])
	}
	if some := slices.Collect(d.Each([]uint64{7, 2, 3, 7})); !slices.Equal(some, []Visible{numbered(7), numbered(3), numbered(7)}) {
		t.Errorf("by ids: %d", some)
	}
	for first := range d.Each(nil) {
		if first != numbered(1) {
			t.Errorf("the first is %d", first)
		}
		break
	}
	if _, ok := d.Get(2); ok {
		t.Error("found what was removed")
	}
	if v, ok := d.Get(3); !ok || v != numbered(3) {
		t.Errorf("%d, %v", v, ok)
	}
}
