package blackbox

import (
	"cmp"
	"errors"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// listOf is the answer to a CLIENT LIST, by the names of the clients; those without a name are by their addresses.
func listOf(c *proxytest.Client, args ...string) map[string]clients.Line {
	c.T.Helper()
	text, ok := clients.Text([]byte(c.Quiet(append([]string{"CLIENT", "LIST"}, args...)...)))
	if !ok {
		c.T.Fatalf("CLIENT LIST %q: %q", args, text)
	}
	lines := map[string]clients.Line{}
	for line := range strings.Lines(string(text)) {
		l := clients.Line(strings.TrimSuffix(line, "\n"))
		name := cmp.Or(string(l.Field("name")), string(l.Field("addr")))
		if other, twice := lines[name]; twice {
			c.T.Errorf("%s is listed twice:\n%s\n%s", name, other, l)
		}
		lines[name] = l
	}
	return lines
}

func keysOf(lines map[string]clients.Line) []string {
	var names []string
	for name := range lines {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestClientListShowsTheProxysClients(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	direct := proxytest.Named(t, srv.Redis.Addr(), "direct")
	admin := proxytest.Named(t, srv.Addr(), "admin")
	worker := proxytest.Named(t, srv.Addr(), "worker")
	worker.Each("SELECT 3", "SET k v")
	reader := proxytest.Named(t, srv.Addr(), "reader")
	reader.Each("HELLO 3", "SUBSCRIBE ch")
	tx := proxytest.Named(t, srv.Addr(), "tx")
	tx.Each("MULTI", "PING")
	popper := proxytest.Named(t, srv.Addr(), "popper")
	popper.Send("BLPOP", "empty", "0")
	locker := proxytest.Named(t, srv.Addr(), "locker")
	holder := proxytest.Named(t, srv.Addr(), "holder")
	holder.Quiet("LOCK", "l")
	locker.Send("LOCK", "l")
	bare := srv.Dial(t) // it has not said anything

	var lines map[string]clients.Line
	proxytest.WaitFor(t, "two clients to be blocked, and one to have arrived", func() bool {
		lines = listOf(admin)
		return strings.Contains(string(lines["popper"].Field("flags")), "b") && strings.Contains(string(lines["locker"].Field("flags")), "b") &&
			lines[bare.Conn.LocalAddr().String()] != nil
	})
	want := []string{"admin", "holder", "locker", "popper", "reader", "tx", "worker", bare.Conn.LocalAddr().String()}
	slices.Sort(want)
	if got := keysOf(lines); !slices.Equal(got, want) {
		t.Errorf("listed are %q, want %q", got, want)
	}
	for name, fields := range map[string]map[string]string{
		"admin":                        {"flags": "N", "cmd": "client|list", "qbuf": "26", "argv-mem": "10", "db": "0", "user": "default", "resp": "2", "sub": "0", "multi": "-1", "redir": "-1", "events": "r", "addr": admin.Conn.LocalAddr().String(), "laddr": srv.Addr()},
		"worker":                       {"flags": "N", "cmd": "set", "db": "3", "resp": "2", "addr": worker.Conn.LocalAddr().String()},
		"reader":                       {"flags": "P", "cmd": "subscribe", "sub": "1", "psub": "0", "resp": "3"},
		"tx":                           {"flags": "x", "cmd": "ping", "multi": "1"},
		"popper":                       {"flags": "b", "cmd": "blpop"},
		"locker":                       {"flags": "b", "cmd": "lock"},
		"holder":                       {"flags": "N", "cmd": "lock"},
		bare.Conn.LocalAddr().String(): {"flags": "N", "cmd": "NULL"},
	} {
		for field, want := range fields {
			if got := string(lines[name].Field(field)); got != want {
				t.Errorf("%s: %s=%s, want %s", name, field, got, want)
			}
		}
	}
	if idle, err := strconv.Atoi(string(lines["admin"].Field("idle"))); err != nil || idle >= int(proxytest.Patience.Seconds()) {
		t.Errorf("who asks is idle for %d s, %v", idle, err)
	}
	// As in Redis's own order of fields, without one more or less.
	shape := regexp.MustCompile(`=[^ ]*`)
	if got, want := shape.ReplaceAllString(string(lines["worker"]), ""), shape.ReplaceAllString(string(listOf(direct, "ID", direct.ID())["direct"]), ""); got != want {
		t.Errorf("fields:\n%s, Redis's are\n%s", got, want)
	}
	for _, c := range []*proxytest.Client{admin, worker, tx} {
		if c == tx {
			tx.Quiet("DISCARD")
		}
		if got, want := c.ID(), string(lines[c.Label].Field("id")); got != want {
			t.Errorf("%s: CLIENT ID is %s, in the list %s", c.Label, got, want)
		}
	}
	if pins, _ := srv.Shared().Upstream.Pins.Status(); pins.Open-pins.Idle > 5 {
		t.Errorf("%d pins", pins.Open-pins.Idle)
	}
	for typ, want := range map[string][]string{
		"pubsub": {"reader"}, "replica": nil, "master": nil,
		"normal": {"admin", "holder", "locker", "popper", "tx", "worker", bare.Conn.LocalAddr().String()},
	} {
		slices.Sort(want)
		if got := keysOf(listOf(admin, "TYPE", typ)); !slices.Equal(got, want) {
			t.Errorf("TYPE %s: %q, want %q", typ, got, want)
		}
	}
	id := func(name string) string { return string(lines[name].Field("id")) }
	text, _ := clients.Text([]byte(admin.Quiet("CLIENT", "LIST", "ID", id("reader"), direct.ID(), id("worker"), id("reader"))))
	var order []string
	for line := range strings.Lines(string(text)) {
		order = append(order, string(clients.Line(line).Field("name"))+" "+string(clients.Line(line).Field("flags")))
	}
	if want := []string{"reader P", "worker N", "reader P"}; !slices.Equal(order, want) {
		t.Errorf("LIST ID: %q, want %q", order, want)
	}
}

func TestClientKill(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	srv.Redis.Do(t, "ACL", "SETUSER", "bob", "on", ">p", "~*", "&*", "+@all")
	admin := proxytest.Named(t, srv.Addr(), "admin")
	kill := func(want string, args ...string) {
		t.Helper()
		if got := admin.Quiet(append([]string{"CLIENT", "KILL"}, args...)...); got != want+"\r\n" {
			t.Errorf("CLIENT KILL %q: %q, want %q", args, got, want)
		}
	}
	worker := proxytest.Named(t, srv.Addr(), "worker") // found by its name, as BullMQ and RQ do
	kill(":1", "ID", string(listOf(admin)["worker"].Field("id")))
	worker.Ends()
	if lines := listOf(admin); lines["worker"] != nil {
		t.Errorf("still listed: %s", lines["worker"])
	}
	a := proxytest.Named(t, srv.Addr(), "a")
	kill("+OK", a.Conn.LocalAddr().String())
	a.Ends()
	kill("-ERR No such client", a.Conn.LocalAddr().String())
	b := proxytest.Named(t, srv.Addr(), "b")
	kill(":0", "ADDR", b.Conn.LocalAddr().String(), "TYPE", "pubsub")
	kill(":0", "ADDR", b.Conn.LocalAddr().String(), "USER", "bob")
	kill(":0", "ADDR", b.Conn.LocalAddr().String(), "LADDR", srv.Redis.Addr())
	kill(":1", "ADDR", b.Conn.LocalAddr().String(), "LADDR", srv.Addr(), "TYPE", "normal", "USER", "default")
	b.Ends()
	bob := srv.Dial(t)
	bob.Quiet("AUTH", "bob", "p")
	directBob := proxytest.Dial(t, srv.Redis.Addr())
	directBob.Quiet("AUTH", "bob", "p")
	kill(":0", "ID", directBob.ID())
	kill("-ERR No such client", directBob.Conn.LocalAddr().String())
	kill(":1", "USER", "bob")
	bob.Ends()
	sub := proxytest.Named(t, srv.Addr(), "sub")
	sub.Quiet("SUBSCRIBE", "ch")
	kill(":1", "TYPE", "pubsub")
	sub.Ends()
	popper := proxytest.Named(t, srv.Addr(), "popper")
	popper.Send("BLPOP", "empty", "0")
	bare := srv.Dial(t)
	proxytest.WaitFor(t, "the silent client to be there", func() bool { return listOf(admin)[bare.Conn.LocalAddr().String()] != nil })
	connected := 0
	proxytest.WaitFor(t, "as many to be counted as are listed", func() bool {
		info := admin.Quiet("INFO", "clients")
		connected, _ = strconv.Atoi(regexp.MustCompile(`connected_clients:(\d+)`).FindStringSubmatch(info)[1])
		return connected == len(listOf(admin))
	})
	kill(":"+strconv.Itoa(connected-1), "TYPE", "normal")
	for _, c := range []*proxytest.Client{popper, bare} {
		c.Ends()
	}
	directBob.Script("PING", "+PONG")
	// The proxy's own connections were not among them.
	for range 3 {
		admin.Script("SET k v", "+OK")
		admin.Quiet("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}
	// With itself among them, the reply is the last that a client gets.
	admin.Send("CLIENT", "KILL", "SKIPME", "no")
	admin.Send("PING")
	admin.Gets(":1")
	admin.Ends()
}

// What a client says of itself, and HELLO says of it, is what others see of it.
func TestClientSpeaksOfItself(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	admin, c := proxytest.Named(t, srv.Addr(), "admin"), proxytest.Named(t, srv.Addr(), "c")
	id := c.ID()
	for _, proto := range []string{"3", "2"} {
		if got := c.Quiet("HELLO", proto); !strings.Contains(got, "$2\r\nid\r\n:"+id+"\r\n") {
			t.Errorf("HELLO: %q, the id is %s", got, id)
		}
		text, _ := clients.Text([]byte(c.Quiet("CLIENT", "INFO")))
		info := clients.Line(strings.TrimSuffix(string(text), "\n"))
		other := listOf(admin, "ID", id)["c"]
		for _, field := range []string{"id", "addr", "laddr", "fd", "name", "flags", "db", "user", "resp", "sub"} {
			if got, want := string(info.Field(field)), string(other.Field(field)); got != want {
				t.Errorf("%s=%s in INFO, %s in LIST", field, got, want)
			}
		}
		if got := string(info.Field("cmd")); got != "client|info" {
			t.Errorf("cmd=%s", got)
		}
	}
	c.Script("SET k v", "+OK")
	c.Send("CLIENT", "REPLY", "OFF")
	c.Send("CLIENT", "LIST")
	c.Send("CLIENT", "ID")
	c.Send("CLIENT", "KILL", "TYPE", "pubsub")
	c.Script("CLIENT REPLY ON", "+OK")
}

// A connection whose number Redis would not say before a client logged in on it ends when that client is killed.
func TestAKilledClientTakesNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "pw")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Addr = "unix:" + redis.Socket() })
	admin, c := srv.Dial(t), srv.Dial(t)
	for _, p := range []*proxytest.Client{admin, c} {
		p.Script("AUTH pw", "+OK")
		p.Quiet("CLIENT", "SETNAME", "c"+p.ID())
	}
	c.Send("BLPOP", "empty", "0")
	proxytest.WaitFor(t, "the client to be blocked", func() bool {
		return strings.Contains(admin.Quiet("INFO", "clients"), "blocked_clients:1\r\n")
	})
	if got := admin.Quiet("CLIENT", "KILL", "TYPE", "normal") + admin.Quiet("RPUSH", "empty", "v") + admin.Quiet("LLEN", "empty"); got != ":1\r\n:1\r\n:1\r\n" {
		t.Errorf("KILL, RPUSH, LLEN: %q", got)
	}
	c.Ends()
}

// A client that names many others as targets takes connections of its own share only.
func TestTargetsOfARedirectionCountForTheClientThatNamesThem(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 4, time.Millisecond
	})
	greedy := srv.Dial(t)
	for i := range 4 {
		target := proxytest.DialFrom(t, "127.0.0."+strconv.Itoa(10+i), srv.Addr())
		greedy.Quiet("CLIENT", "TRACKING", "ON", "REDIRECT", target.ID())
	}
	proxytest.DialFrom(t, "127.0.0.20", srv.Addr()).Script("MULTI", "+OK")
}

// A client cannot name one of Redis's own clients by its number, and so no connection of the proxy's either: nothing is sent there, and no
// wait ends.
func TestNoClientNamesAClientOfRedis(t *testing.T) {
	t.Parallel()
	const unknown = "-ERR The client ID you want redirect to does not exist\r\n"
	srv := proxytest.Start(t, redistest.Start(t))
	other := proxytest.Dial(t, srv.Redis.Addr())
	mine := strings.Trim(other.Quiet("CLIENT", "ID"), ":\r\n")
	sharer, waiter := srv.Dial(t), srv.Dial(t)
	sharer.Each("HELLO 3", "LOCK l", "GET k")
	waiter.Send("BLPOP", "empty", "0")
	proxytest.AwaitBlocked(t, 1, srv.Redis)
	c, monitor := srv.Dial(t), srv.Dial(t)
	monitor.Script("MONITOR", "+OK")
	list, _ := srv.Redis.Do(t, "CLIENT", "LIST").(string)
	own := 0
	for line := range strings.Lines(list) {
		id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
		if id != mine && !strings.Contains(line, "cmd=client|list") {
			own++
		}
		for _, got := range []string{
			c.Quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id),
			c.Quiet("client", "tracking", "on", "bcast", "prefix", "redirect", "noloop", "redirect", id),
		} {
			if !strings.HasSuffix(got, unknown) {
				t.Errorf("TRACKING: %q for %s", got, line)
			}
		}
		c.Script("CLIENT UNBLOCK "+id+" ERROR", ":0")
	}
	if own < 5 {
		t.Errorf("%d connections of the proxy in %s", own, list)
	}
	srv.Redis.Do(t, "RPUSH", "empty", "v")
	waiter.Gets("*2\r\n")
}

// A CLIENT LIST keeps its place among the replies, however long it takes, and commands of others do not wait for it.
func TestListOfManyClients(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	const n = 500
	for i := range n {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("CLIENT SETNAME c" + strconv.Itoa(i)))
		defer c.Conn.Close()
	}
	admin := srv.Dial(t)
	proxytest.WaitFor(t, "all to be there", func() bool { return srv.Stats().Clients == n+1 })
	var ids []string
	for _, l := range listOf(admin) {
		ids = append(ids, string(l.Field("id")))
	}
	if len(ids) != n+1 {
		t.Errorf("%d clients are listed, want %d", len(ids), n+1)
	}
	for range 5 {
		admin.Send("CLIENT", "LIST")
		admin.Send("ECHO", "x")
		admin.Send(append([]string{"CLIENT", "LIST", "ID"}, ids...)...)
		admin.Send("PING")
	}
	for range 5 {
		for _, want := range []string{"id=", "x", "id=", "PONG"} {
			if got, err := admin.Frame(); !strings.Contains(got, want) || err != nil {
				t.Fatalf("%.50q, %v, want %s", got, err, want)
			}
		}
	}
}

// Killing everybody while everybody asks: nothing deadlocks, and nobody gets a reply that is not to its command.
func TestClientsAskAndKillAtOnce(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	done := make(chan struct{})
	const n = 8
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			for j := range 30 {
				nc, err := net.Dial("tcp", srv.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				c := &proxytest.Client{T: t, Conn: nc, Side: &proxytest.Side{T: t}}
				c.Raw(proxytest.Inline("CLIENT LIST", "CLIENT INFO", "CLIENT KILL TYPE normal SKIPME "+[]string{"yes", "no"}[(i+j)%2], "INFO clients"))
				for _, want := range []string{"$", "$", ":", "$"} {
					b, err := c.Frame()
					if errors.Is(err, proxytest.ErrTimeout) || err == nil && !strings.HasPrefix(b, want) {
						t.Errorf("%.80q, %v, want %s", b, err, want)
					}
					if err != nil {
						break
					}
				}
				_ = nc.Close()
			}
		}()
	}
	for range n {
		<-done
	}
	proxytest.Recovers(t, srv)
}

// A redirection to a client that is just beginning to wait, or whose login Redis judges, fails as one to a client that waits. It does not wait
// itself.
func TestTrackingRedirectsToAClientThatBeginsToWait(t *testing.T) {
	t.Parallel()
	const unknown = "-ERR The client ID you want redirect to does not exist"
	srv := proxytest.Start(t, redistest.Start(t))
	srv.Redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	proxytest.Named(t, srv.Addr(), "admin").Quiet("LOCK", "k")
	first := proxytest.Named(t, srv.Addr(), "first")
	for what, begin := range map[string]func(sink *proxytest.Client){
		"a lock": func(sink *proxytest.Client) { sink.Send("LOCK", "k") },
		"an element": func(sink *proxytest.Client) {
			first.Send("BLPOP", "l", "0") // takes the connection that is ready
			proxytest.WaitFor(t, "the first waiter", func() bool { return srv.StatusOf(first).Pin == "blpop" })
			sink.Send("BLPOP", "l", "0")
		},
		"a login": func(sink *proxytest.Client) { sink.Send("AUTH", "app", "pw") },
	} {
		sink, c := proxytest.Named(t, srv.Addr(), "sink"), proxytest.Named(t, srv.Addr(), "c")
		id := sink.ID()
		srv.Redis.Pause()
		begin(sink)
		proxytest.WaitFor(t, what, func() bool { return srv.StatusOf(sink).Unanswered > 0 })
		c.Send("CLIENT", "TRACKING", "ON", "REDIRECT", id)
		proxytest.WaitFor(t, "the refusal to be asked for", func() bool {
			st := srv.StatusOf(c)
			return st.State == "" && st.Unanswered > 0
		})
		srv.Redis.Continue()
		c.Gets(unknown)
	}
}
