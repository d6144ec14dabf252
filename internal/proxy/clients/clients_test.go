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
		if diff := cmp.Diff(want, string(c.Append(nil, ShapeOf(Line(test.shape)), own))); diff != "" {
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

// Whatever is asked, what Redis gets kills no client: the filter has an address that no client has, and it is the last one.
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

func TestParseKill(t *testing.T) {
	a, u := "1.2.3.4:5", "bob"
	for _, test := range []struct {
		args string
		want *Filter
	}{
		{"1.2.3.4:5", &Filter{Addr: &a, Old: true}},
		{"ID 7", &Filter{IDs: []uint64{7}, SkipMe: true}},
		{"ID 9 ID 7", &Filter{IDs: []uint64{7}, SkipMe: true}}, // the last one counts
		{"ID 9 8 7 SKIPME no", &Filter{IDs: []uint64{7, 8, 9}}},
		{"type SLAVE user bob maxage 30", &Filter{Type: Replica, User: &u, MaxAge: 30, SkipMe: true}},
		{"LADDR 1.2.3.4:5 ADDR 1.2.3.4:5", &Filter{LAddr: &a, Addr: &a, SkipMe: true}},
		{"NAME x", nil},
		{"TYPE novel", nil},
		{"ID 1 x", nil},
		{"ID x", nil},
		{"MAXAGE x", nil},
	} {
		got, ok := ParseKill(words(test.args))
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

func TestFilterMatchesBothKinds(t *testing.T) {
	c := Info{ID: 7, Addr: "127.0.0.1:5000", LAddr: "127.0.0.1:6379", User: "bob", Age: 9, Subs: 1, Multi: -1}
	for args, want := range map[string]bool{
		"127.0.0.1:5000": true, "127.0.0.1:50": false, "ID 7": true, "ID 5 6 7": true, "ID 8": false, "TYPE pubsub": true, "TYPE normal": false, "USER bob": true, "USER bo": false,
		"LADDR 127.0.0.1:6379": true, "LADDR 127.0.0.1:5000": false, "MAXAGE 9": true, "MAXAGE 10": false, "SKIPME no": true,
		"ID 7 ADDR 127.0.0.1:5000 TYPE pubsub USER bob": true, "ID 7 ADDR 127.0.0.1:5001 TYPE pubsub USER bob": false,
	} {
		f, _ := ParseKill(words(args))
		if got := f.Match(&c, nil); got != want {
			t.Errorf("%s matches a client of the proxy: %v", args, got)
		}
		if got := f.MatchLine(Line(line7)); got != want {
			t.Errorf("%s matches a client of Redis's: %v", args, got)
		}
	}
}

func TestListing(t *testing.T) {
	text := "id=3 addr=a:1 flags=N redir=-1\nid=4 addr=b:1 flags=P redir=-1\nid=5 addr=c:1 flags=N redir=-1\nid=6 addr=d:1 flags=t redir=4\n"
	own := func(id uint64, addr string) bool { return id == 4 || id == 6 || addr == "c:1" }
	l := ParseListing([]byte(text), own)
	proxys := []Info{
		{ID: 1002, Addr: "y", Multi: -1, Conn: 6, Redir: 1001, RedirConn: 4},
		{ID: 1001, Addr: "x", Multi: -1, Conn: 4},
		{ID: 1003, Addr: "z", Multi: -1, Conn: 99}, // its connection is not in the listing
	}
	all := []string{"id=3 addr=a:1 flags=N redir=-1", "id=1001 addr=x flags=P redir=-1", "id=1002 addr=y flags=t redir=1001", "id=1003 addr=z flags=N redir=-1"}
	lines := func(n ...int) string {
		var b strings.Builder
		for _, i := range n {
			b.WriteString(all[i] + "\n")
		}
		return b.String()
	}
	for only, want := range map[Type]string{AnyType: lines(0, 1, 2, 3), PubSub: lines(0, 1), Normal: lines(0, 2, 3)} { // Redis has filtered its own
		if diff := cmp.Diff(want, string(l.Text(slices.Clone(proxys), only, nil, 1<<20))); diff != "" {
			t.Errorf("type %d (-want +got):\n%s", only, diff)
		}
	}
	find := func(id uint64) (*Info, bool) {
		i := slices.IndexFunc(proxys, func(c Info) bool { return c.ID == id })
		if i < 0 {
			return nil, false
		}
		return &proxys[i], true
	}
	if diff := cmp.Diff(lines(2, 0, 0), string(l.TextOf(words("1002 5 4 3 9 x 3"), find, nil, 1<<20))); diff != "" {
		t.Errorf("by ids (-want +got):\n%s", diff)
	}
	many := make([]Info, 100)
	if got := len(l.Text(many, AnyType, nil, 1000)); got > 1200 {
		t.Errorf("%d bytes, the limit is 1000", got)
	}
	empty := ParseListing(nil, own)
	if got := string(empty.Text(proxys[:1], AnyType, nil, 1<<20)); !strings.HasPrefix(got, "id=1002 addr=y laddr= fd=0 ") {
		t.Errorf("where Redis shows no line: %s", got)
	}
}

func TestCountsAreEdited(t *testing.T) {
	const info = "# Server\r\nconnected_clients:9\r\n\r\n# Clients\r\nconnected_clients:9\r\ncluster_connections:0\r\nblocked_clients:2\r\n\r\n# Memory\r\nused_memory:1\r\n"
	const want = "# Server\r\nconnected_clients:9\r\n\r\n# Clients\r\nconnected_clients:104\r\ncluster_connections:0\r\nblocked_clients:5\r\n\r\n# Memory\r\nused_memory:1\r\n"
	c := Counts{Clients: 100, Connections: 5, Waiting: 3}
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
		if id <= last || Foreign(int64(id)) || uint64(float64(id)) != id {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
	for _, id := range []int64{-1, 0, 1, 1 << 40, 1<<63 - 1} {
		if !Foreign(id) {
			t.Errorf("%d is taken for one of the proxy's", id)
		}
	}
}

func TestDirectory(t *testing.T) {
	var d Directory[int]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				id := uint64(i*500 + j)
				d.Put(id, int(id))
				d.Put(id, int(id))
				if j%2 == 0 {
					d.Remove(id)
					d.Remove(id)
				}
				d.All()
			}
		})
	}
	wg.Wait()
	all := d.All()
	slices.Sort(all)
	if len(all) != 2000 || d.Len() != 2000 || all[0] != 1 || all[1999] != 3999 {
		t.Errorf("%d of %d, from %d to %d", len(all), d.Len(), all[0], all[len(all)-1])
	}
	if _, ok := d.Get(2); ok {
		t.Error("found what was removed")
	}
	if v, ok := d.Get(3); !ok || v != 3 {
		t.Errorf("%d, %v", v, ok)
	}
}
