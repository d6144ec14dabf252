package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// listOf is the answer to a CLIENT LIST, by the names of the clients; those without a name are by their addresses.
func (c *peer) listOf(args ...string) map[string]clients.Line {
	c.t.Helper()
	text, ok := clients.Text([]byte(c.quiet(append([]string{"CLIENT", "LIST"}, args...)...)))
	if !ok {
		c.t.Fatalf("CLIENT LIST %q: %q", args, text)
	}
	lines := map[string]clients.Line{}
	for line := range strings.Lines(string(text)) {
		l := clients.Line(strings.TrimSuffix(line, "\n"))
		name := cmp.Or(string(l.Field("name")), string(l.Field("addr")))
		if other, twice := lines[name]; twice {
			c.t.Errorf("%s is listed twice:\n%s\n%s", name, other, l)
		}
		lines[name] = l
	}
	return lines
}

// named connects a client that has given itself a name.
func named(t *testing.T, addr, name string) *peer {
	t.Helper()
	c := dialClient(t, addr)
	c.label = name
	if got := c.quiet("CLIENT", "SETNAME", name); got != "+OK\r\n" {
		t.Fatalf("SETNAME: %q", got)
	}
	return c
}

// A lock command may be read before Redis has answered the CLIENT SETNAME in front of it.
func TestLocksKnowTheNameOfTheSameWrite(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		c.raw(inline("CLIENT SETNAME early", "LOCK k", "LOCKLIST"))
		c.expect(2)
		if got, err := c.frame(); err != nil || !strings.Contains(got, "\nearly\r\n") {
			t.Errorf("LOCKLIST: %q, %v", got, err)
		}
	})
}

func (c *peer) id() string {
	c.t.Helper()
	return strconv.Itoa(integer(c.t, c.quiet("CLIENT", "ID")))
}

// gone expects the end of the connection, without another word.
func (c *peer) gone() {
	c.t.Helper()
	c.side = &side{t: c.t.(*testing.T)}
	if b, err := c.frame(); err == nil || b != "" || errors.Is(err, errTimeout) {
		c.t.Errorf("%s should have been closed: %q, %v", c.label, b, err)
	}
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
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		direct := named(t, redis.Addr(), "direct")
		admin := named(t, address(srv), "admin")
		worker := named(t, address(srv), "worker")
		worker.quiet("SELECT", "3")
		worker.quiet("SET", "k", "v")
		reader := named(t, address(srv), "reader")
		reader.quiet("HELLO", "3")
		reader.quiet("SUBSCRIBE", "ch")
		tx := named(t, address(srv), "tx")
		tx.quiet("MULTI")
		tx.quiet("PING")
		popper := named(t, address(srv), "popper")
		popper.send("BLPOP", "empty", "0")
		locker := named(t, address(srv), "locker")
		holder := named(t, address(srv), "holder")
		holder.quiet("LOCK", "l")
		locker.send("LOCK", "l")
		bare := dialClient(t, address(srv)) // it has not said anything

		var lines map[string]clients.Line
		redistest.Eventually(t, patience, "two clients to be blocked, and one to have arrived", func() bool {
			lines = admin.listOf()
			return strings.Contains(string(lines["popper"].Field("flags")), "b") && strings.Contains(string(lines["locker"].Field("flags")), "b") &&
				lines[bare.nc.LocalAddr().String()] != nil
		})
		want := []string{"admin", "holder", "locker", "popper", "reader", "tx", "worker", bare.nc.LocalAddr().String()}
		slices.Sort(want)
		if got := keysOf(lines); !slices.Equal(got, want) {
			t.Errorf("listed are %q, want %q", got, want)
		}
		for name, fields := range map[string]map[string]string{
			"admin":                      {"flags": "N", "cmd": "client|list", "qbuf": "26", "argv-mem": "10", "db": "0", "user": "default", "resp": "2", "sub": "0", "multi": "-1", "redir": "-1", "events": "r", "addr": admin.nc.LocalAddr().String(), "laddr": address(srv)},
			"worker":                     {"flags": "N", "cmd": "set", "db": "3", "resp": "2", "addr": worker.nc.LocalAddr().String()},
			"reader":                     {"flags": "P", "cmd": "subscribe", "sub": "1", "psub": "0", "resp": "3"},
			"tx":                         {"flags": "x", "cmd": "ping", "multi": "1"},
			"popper":                     {"flags": "b", "cmd": "blpop"},
			"locker":                     {"flags": "b", "cmd": "lock"},
			"holder":                     {"flags": "N", "cmd": "lock"},
			bare.nc.LocalAddr().String(): {"flags": "N", "cmd": "NULL"},
		} {
			for field, want := range fields {
				if got := string(lines[name].Field(field)); got != want {
					t.Errorf("%s: %s=%s, want %s", name, field, got, want)
				}
			}
		}
		if idle, err := strconv.Atoi(string(lines["admin"].Field("idle"))); err != nil || idle >= int(patience.Seconds()) {
			t.Errorf("who asks is idle for %d s, %v", idle, err)
		}
		// As in Redis's own order of fields, without one more or less.
		shape := regexp.MustCompile(`=[^ ]*`)
		if got, want := shape.ReplaceAllString(string(lines["worker"]), ""), shape.ReplaceAllString(string(direct.listOf("ID", direct.id())["direct"]), ""); got != want {
			t.Errorf("fields:\n%s, Redis's are\n%s", got, want)
		}
		for _, c := range []*peer{admin, worker, tx} {
			if c == tx {
				tx.quiet("DISCARD")
			}
			if got, want := c.id(), string(lines[c.label].Field("id")); got != want {
				t.Errorf("%s: CLIENT ID is %s, in the list %s", c.label, got, want)
			}
		}
		if pins, _ := srv.shared.Upstream.Pins(); pins.Open-pins.Idle > 5 {
			t.Errorf("%d pins", pins.Open-pins.Idle)
		}
		for typ, want := range map[string][]string{
			"pubsub": {"reader"}, "replica": nil, "master": nil,
			"normal": {"admin", "holder", "locker", "popper", "tx", "worker", bare.nc.LocalAddr().String()},
		} {
			slices.Sort(want)
			if got := keysOf(admin.listOf("TYPE", typ)); !slices.Equal(got, want) {
				t.Errorf("TYPE %s: %q, want %q", typ, got, want)
			}
		}
		id := func(name string) string { return string(lines[name].Field("id")) }
		text, _ := clients.Text([]byte(admin.quiet("CLIENT", "LIST", "ID", id("reader"), direct.id(), id("worker"), id("reader"))))
		var order []string
		for line := range strings.Lines(string(text)) {
			order = append(order, string(clients.Line(line).Field("name"))+" "+string(clients.Line(line).Field("flags")))
		}
		if want := []string{"reader P", "worker N", "reader P"}; !slices.Equal(order, want) {
			t.Errorf("LIST ID: %q, want %q", order, want)
		}
	})
}

// Asking pins nothing, and neither does a command that is refused, nor one that switches off what is not on.
func TestAskingAboutClientsPinsNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := startProxy(t, redis, func(o *Options) { o.Upstream.Pins.Max = 1; o.Upstream.Pins.Wait = 50 * time.Millisecond })
	var askers []*peer
	for i := range 8 {
		askers = append(askers, named(t, address(srv), "asker"+strconv.Itoa(i)))
	}
	for _, args := range [][]string{
		{"CLIENT", "LIST"},
		{"CLIENT", "LIST", "TYPE", "normal"},
		{"CLIENT", "INFO"},
		{"CLIENT", "ID"},
		{"CLIENT", "GETREDIR"},
		{"CLIENT", "TRACKINGINFO"},
		{"CLIENT", "KILL", "ID", "12345"},
		{"CLIENT", "KILL", "127.0.0.1:1"},
		{"CLIENT", "UNBLOCK", "12345"},
		{"CLIENT", "LIST", "BAD"},
		{"CLIENT", "KILL"},
		{"CLIENT", "TRACKING", "OFF"},
		{"CLIENT", "NO-EVICT", "OFF"},
		{"CLIENT", "CACHING", "YES"},
		{"CLIENT", "TRACKING", "ON", "NONSENSE"},
		{"CLIENT", "TRACKING", "ON", "OPTIN", "OPTOUT"},
		{"CLIENT", "NO-EVICT", "MAYBE"},
		{"ASKING"},
		{"READONLY"},
		{"INFO", "clients"},
		{"INFO"},
	} {
		for _, c := range askers {
			if got := c.quiet(args...); strings.HasPrefix(got, "-OVERLOADED") {
				t.Fatalf("%q: %q", args, got)
			}
			if c.quiet("MULTI"); c.quiet("EXEC") != "*0\r\n" {
				t.Fatalf("after %q there is no transaction", args)
			}
		}
	}
}

// What is wrong with the words, and who may say them, is Redis's to tell, with what the version has.
func TestClientErrorsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.both(t, func(s *side, proto int) {
		c := s.speaking("a", proto)
		for _, line := range []string{
			"LIST x", "LIST TYPE", "LIST TYPE x", "LIST TYPE normal x", "LIST ID", "LIST ID x", "LIST ID 1 x", "LIST ID 99999999 88888888", "LIST TYPE master",
			"KILL", "KILL x", "KILL 127.0.0.1:1", "KILL ID", "KILL ID 10 wrong_arg", "KILL ID str", "KILL ID -1", "KILL ID 0", "KILL TYPE wrong", "KILL USER nobody", "KILL SKIPME yes_or_no",
			"KILL ID 99999999", "KILL ADDR 1.2.3.4:5", "KILL LADDR 1.2.3.4:5", "KILL TYPE replica", "KILL TYPE pubsub SKIPME no", "KILL ID 10 ADDR", "KILL ID 10 TYPE", "KILL ADDR 1.2.3.4:5 USER",
			"KILL MAXAGE 10 x y", "KILL USER default ADDR 1.2.3.4:6 TYPE normal ID 5", "KILL ID 1 2 3",
			"UNBLOCK", "UNBLOCK x", "UNBLOCK 99999999", "UNBLOCK 99999999 ERROR", "UNBLOCK 99999999 x", "UNBLOCK 1 TIMEOUT x", "UNBLOCK 8999999999999999",
			"ID x", "INFO x", "GETREDIR", "GETREDIR x", "TRACKINGINFO", "TRACKINGINFO x", "CACHING", "CACHING YES", "TRACKING", "TRACKING OFF", "TRACKING ON REDIRECT 8999999999999999",
			"NO-EVICT", "NO-EVICT OFF", "NOSUCH", "SETINFO LIB-NAME x",
		} {
			c.raw("CLIENT " + line + "\r\n")
			c.expect(1)
		}
		c.do("ACL", "SETUSER", "u", "on", ">p", "+@all", "-client|list", "-client|kill")
		u := s.speaking("u", proto)
		u.do("AUTH", "u", "p")
		for _, line := range []string{"LIST", "KILL 127.0.0.1:1", "KILL TYPE normal", "UNBLOCK 99999999"} {
			u.raw("CLIENT " + line + "\r\n")
			u.expect(1)
		}
		c.do("ACL", "DELUSER", "u")
	})
}

func TestClientKill(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		redis.Do(t, "ACL", "SETUSER", "bob", "on", ">p", "~*", "&*", "+@all")
		admin := named(t, address(srv), "admin")
		kill := func(want string, args ...string) {
			t.Helper()
			if got := admin.quiet(append([]string{"CLIENT", "KILL"}, args...)...); got != want+"\r\n" {
				t.Errorf("CLIENT KILL %q: %q, want %q", args, got, want)
			}
		}
		worker := named(t, address(srv), "worker") // found by its name, as BullMQ and RQ do
		kill(":1", "ID", string(admin.listOf()["worker"].Field("id")))
		worker.gone()
		if lines := admin.listOf(); lines["worker"] != nil {
			t.Errorf("still listed: %s", lines["worker"])
		}
		a := named(t, address(srv), "a")
		kill("+OK", a.nc.LocalAddr().String())
		a.gone()
		kill("-ERR No such client", a.nc.LocalAddr().String())
		b := named(t, address(srv), "b")
		kill(":0", "ADDR", b.nc.LocalAddr().String(), "TYPE", "pubsub")
		kill(":0", "ADDR", b.nc.LocalAddr().String(), "USER", "bob")
		kill(":0", "ADDR", b.nc.LocalAddr().String(), "LADDR", redis.Addr())
		kill(":1", "ADDR", b.nc.LocalAddr().String(), "LADDR", address(srv), "TYPE", "normal", "USER", "default")
		b.gone()
		bob := dialClient(t, address(srv))
		bob.quiet("AUTH", "bob", "p")
		directBob := dialClient(t, redis.Addr())
		directBob.quiet("AUTH", "bob", "p")
		kill(":0", "ID", directBob.id())
		kill("-ERR No such client", directBob.nc.LocalAddr().String())
		kill(":1", "USER", "bob")
		bob.gone()
		sub := named(t, address(srv), "sub")
		sub.quiet("SUBSCRIBE", "ch")
		kill(":1", "TYPE", "pubsub")
		sub.gone()
		popper := named(t, address(srv), "popper")
		popper.send("BLPOP", "empty", "0")
		bare := dialClient(t, address(srv))
		redistest.Eventually(t, patience, "the silent client to be there", func() bool { return admin.listOf()[bare.nc.LocalAddr().String()] != nil })
		connected := 0
		redistest.Eventually(t, patience, "as many to be counted as are listed", func() bool {
			info := admin.quiet("INFO", "clients")
			connected, _ = strconv.Atoi(regexp.MustCompile(`connected_clients:(\d+)`).FindStringSubmatch(info)[1])
			return connected == len(admin.listOf())
		})
		kill(":"+strconv.Itoa(connected-1), "TYPE", "normal")
		for _, c := range []*peer{popper, bare} {
			c.gone()
		}
		if got := directBob.quiet("PING"); got != "+PONG\r\n" {
			t.Errorf("Redis's own client: %q", got)
		}
		// The proxy's own connections were not among them.
		for range 3 {
			if got := admin.quiet("SET", "k", "v"); got != "+OK\r\n" {
				t.Errorf("SET: %q", got)
			}
			admin.quiet("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}
		// With itself among them, the reply is the last that a client gets.
		admin.send("CLIENT", "KILL", "SKIPME", "no")
		admin.send("PING")
		if got, err := admin.frame(); got != ":1\r\n" || err != nil {
			t.Errorf("killing itself: %q, %v", got, err)
		}
		admin.gone()
	})
}

func TestClientUnblock(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		admin, c := named(t, address(srv), "admin"), named(t, address(srv), "c")
		holder := named(t, address(srv), "holder")
		holder.quiet("LOCK", "l")
		id := c.id()
		unblock := func(want string, args ...string) {
			t.Helper()
			if got := admin.quiet(append([]string{"CLIENT", "UNBLOCK"}, args...)...); got != want {
				t.Errorf("UNBLOCK %q: %q, want %q", args, got, want)
			}
		}
		blocked := func() {
			t.Helper()
			redistest.Eventually(t, patience, "the client to be blocked", func() bool { return string(admin.listOf()["c"].Field("flags")) == "b" })
		}
		expect := func(want string) {
			t.Helper()
			if got, err := c.frame(); got != want || err != nil {
				t.Errorf("the blocked command was answered %q, %v, want %q", got, err, want)
			}
		}
		const failure = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
		unblock(":0\r\n", id)
		for _, command := range [][]string{{"BLPOP", "empty", "0"}, {"LOCK", "l"}, {"FAIRLOCK", "l"}} {
			timeout := "$-1\r\n"
			if command[0] == "BLPOP" {
				timeout = "*-1\r\n"
			}
			c.send(command...)
			blocked()
			unblock(":1\r\n", id)
			expect(timeout)
			unblock(":0\r\n", id)
			c.send(command...)
			blocked()
			unblock(":1\r\n", id, "ERROR")
			expect(failure)
			unblock(":0\r\n", id, "TIMEOUT")
			if got := c.quiet("PING"); got != "+PONG\r\n" {
				t.Errorf("after %q: %q", command, got)
			}
		}
		redistest.Eventually(t, patience, "the fair waiter to leave", func() bool { // its reply does not wait for that for long
			return strings.Contains(holder.quiet("LOCKINFO", "l"), "fair-waiters\r\n:0\r\n")
		})
	})
}

// The connection of a client that waits is at the server of its key, where the proxy ends the wait.
func clientsAreEndedAtTheirServers(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		admin := named(t, address(srv), "admin")
		for _, node := range c.Nodes {
			key := "{" + keyOf(t, c, node) + "}" + engine
			waiter := named(t, address(srv), "waiter")
			id := waiter.id()
			blocks := func() {
				t.Helper()
				waiter.send("BLPOP", key, "0")
				redistest.Eventually(t, patience, "the wait", func() bool { return blocked(t, node) == 1 })
				if got := admin.quiet("CLIENT", "LIST", "ID", id); !strings.Contains(got, " flags=b ") {
					t.Errorf("a waiter is listed as %s", got)
				}
			}
			blocks()
			if got := admin.quiet("CLIENT", "UNBLOCK", id, "ERROR"); got != ":1\r\n" {
				t.Errorf("UNBLOCK: %q", got)
			}
			waiter.expectReply("-UNBLOCKED client unblocked via CLIENT UNBLOCK")
			blocks()
			if got := admin.quiet("CLIENT", "KILL", "ID", id) + admin.quiet("RPUSH", key, "v") + admin.quiet("LLEN", key); got != ":1\r\n:1\r\n:1\r\n" {
				t.Errorf("KILL, RPUSH, LLEN: %q", got)
			}
			waiter.gone()
		}
	}
}

func TestInfoCountsClients(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		direct := dialClient(t, redis.Addr())
		field := func(c *peer, name string, args ...string) int {
			t.Helper()
			m := regexp.MustCompile(name + `:(\d+)\r\n`).FindStringSubmatch(c.quiet(append([]string{"INFO"}, args...)...))
			if m == nil {
				t.Fatalf("INFO %q has no %s", args, name)
			}
			n, _ := strconv.Atoi(m[1])
			return n
		}
		var all []*peer
		for i := range 5 {
			all = append(all, named(t, address(srv), fmt.Sprint("c", i)))
		}
		all[1].quiet("MULTI")
		all[2].send("BLPOP", "empty", "0")
		all[3].quiet("LOCK", "l")
		all[4].send("LOCK", "l")
		for _, proto := range []string{"2", "3"} {
			all[0].quiet("HELLO", proto)
			for _, args := range [][]string{nil, {"clients"}, {"ALL"}, {"everything"}, {"server", "CLIENTS"}, {"default"}} {
				redistest.Eventually(t, patience, "the blocked clients to be counted", func() bool { return field(all[0], "blocked_clients", args...) == 2 })
				redistest.Eventually(t, patience, "the connected clients to be counted", func() bool { return field(all[0], "connected_clients", args...) == 5 })
			}
		}
		// Apart from the numbers, not a byte is different.
		all[0].quiet("HELLO", "2")
		hide := regexp.MustCompile(`^\S+|:[^\r]*`)
		if got, want := hide.ReplaceAllString(all[0].quiet("INFO", "clients"), ""), hide.ReplaceAllString(direct.quiet("INFO", "clients"), ""); got != want {
			t.Errorf("%q, Redis says %q", got, want)
		}
	})
}

// What a client says of itself, and HELLO says of it, is what others see of it.
func TestClientSpeaksOfItself(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		admin, c := named(t, address(srv), "admin"), named(t, address(srv), "c")
		id := c.id()
		for _, proto := range []string{"3", "2"} {
			if got := c.quiet("HELLO", proto); !strings.Contains(got, "$2\r\nid\r\n:"+id+"\r\n") {
				t.Errorf("HELLO: %q, the id is %s", got, id)
			}
			text, _ := clients.Text([]byte(c.quiet("CLIENT", "INFO")))
			info := clients.Line(strings.TrimSuffix(string(text), "\n"))
			other := admin.listOf("ID", id)["c"]
			for _, field := range []string{"id", "addr", "laddr", "fd", "name", "flags", "db", "user", "resp", "sub"} {
				if got, want := string(info.Field(field)), string(other.Field(field)); got != want {
					t.Errorf("%s=%s in INFO, %s in LIST", field, got, want)
				}
			}
			if got := string(info.Field("cmd")); got != "client|info" {
				t.Errorf("cmd=%s", got)
			}
		}
		c.quiet("MULTI")
		c.quiet("CLIENT", "ID")
		c.quiet("CLIENT", "INFO")
		c.quiet("SET", "k", "v")
		if got := c.quiet("EXEC"); !strings.HasPrefix(got, "*3\r\n:"+id+"\r\n$") || !strings.Contains(got, "\r\nid="+id+" addr="+c.nc.LocalAddr().String()) || !strings.HasSuffix(got, "+OK\r\n") {
			t.Errorf("EXEC: %q", got)
		}
		for _, more := range []string{"PING", "UNSUBSCRIBE"} {
			c.quiet("MULTI")
			c.quiet("HELLO", "2")
			c.quiet(more)
			c.quiet("CLIENT", "ID")
			if got := c.quiet("EXEC"); !strings.Contains(got, "$2\r\nid\r\n:"+id+"\r\n") || !strings.HasSuffix(got, "\r\n:"+id+"\r\n") {
				t.Errorf("EXEC of HELLO, %s and CLIENT ID: %q", more, got)
			}
		}
		for _, sub := range []string{"LIST", "KILL", "UNBLOCK"} {
			c.quiet("MULTI")
			if got := c.quiet("CLIENT", sub, "ID", "1"); got != "-ERR Command not allowed inside a transaction\r\n" {
				t.Errorf("CLIENT %s in a transaction: %q", sub, got)
			}
			if got := c.quiet("EXEC"); !strings.HasPrefix(got, "-EXECABORT") {
				t.Errorf("EXEC: %q", got)
			}
		}
		c.send("CLIENT", "REPLY", "OFF")
		c.send("CLIENT", "LIST")
		c.send("CLIENT", "ID")
		c.send("CLIENT", "KILL", "TYPE", "pubsub")
		if got := c.quiet("CLIENT", "REPLY", "ON"); got != "+OK\r\n" {
			t.Errorf("CLIENT REPLY ON: %q", got)
		}
	})
}

// A connection whose number Redis would not say before a client logged in on it ends when that client is killed.
func TestAKilledClientTakesNothing(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		redis := redistest.Start(t, "--requirepass", "pw")
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Upstream.Addr = engine, "unix:"+redis.Socket() })
		admin, c := dialClient(t, address(srv)), dialClient(t, address(srv))
		for _, p := range []*peer{admin, c} {
			if got := p.quiet("AUTH", "pw"); got != "+OK\r\n" {
				t.Fatalf("AUTH: %q", got)
			}
			p.quiet("CLIENT", "SETNAME", "c"+p.id())
		}
		c.send("BLPOP", "empty", "0")
		redistest.Eventually(t, patience, "the client to be blocked", func() bool {
			return strings.Contains(admin.quiet("INFO", "clients"), "blocked_clients:1\r\n")
		})
		if got := admin.quiet("CLIENT", "KILL", "TYPE", "normal") + admin.quiet("RPUSH", "empty", "v") + admin.quiet("LLEN", "empty"); got != ":1\r\n:1\r\n:1\r\n" {
			t.Errorf("KILL, RPUSH, LLEN: %q", got)
		}
		c.gone()
	}
}

// CLIENT TRACKING may redirect to a client of the proxy, by the id that CLIENT ID says.
func TestTrackingRedirectsToAClient(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		sink, c, admin := named(t, address(srv), "sink"), named(t, address(srv), "c"), named(t, address(srv), "admin")
		id := sink.id()
		sink.quiet("SUBSCRIBE", "__redis__:invalidate")
		if got := c.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != "+OK\r\n" {
			t.Fatalf("TRACKING: %q", got)
		}
		c.quiet("GET", "k")
		admin.quiet("SET", "k", "v")
		if got, err := sink.frame(); !strings.Contains(got, "__redis__:invalidate\r\n*1\r\n$1\r\nk") || err != nil {
			t.Errorf("invalidation: %q, %v", got, err)
		}
		if got := c.quiet("CLIENT", "GETREDIR"); got != ":"+id+"\r\n" {
			t.Errorf("GETREDIR: %q, want %s", got, id)
		}
		if got := c.quiet("CLIENT", "TRACKINGINFO"); !strings.Contains(got, "redirect\r\n:"+id+"\r\n") {
			t.Errorf("TRACKINGINFO: %q", got)
		}
		if got := c.quiet("CLIENT", "INFO"); !strings.Contains(got, " redir="+id+" ") || !strings.Contains(got, " flags=t ") {
			t.Errorf("INFO: %s, redirected to %s", got, id)
		}
	})
}

// A client cannot name one of Redis's own clients by its number, and so no connection of the proxy's either: nothing is sent there, and no
// wait ends.
func TestNoClientNamesAClientOfRedis(t *testing.T) {
	t.Parallel()
	const unknown = "-ERR The client ID you want redirect to does not exist\r\n"
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		other := dialClient(t, redis.Addr())
		mine := strings.Trim(other.quiet("CLIENT", "ID"), ":\r\n")
		sharer, waiter := dialClient(t, address(srv)), dialClient(t, address(srv))
		sharer.quiet("HELLO", "3")
		sharer.quiet("LOCK", "l")
		sharer.quiet("GET", "k")
		waiter.send("BLPOP", "empty", "0")
		redistest.Eventually(t, patience, "a blocked client", func() bool { return blocked(t, redis) == 1 })
		c, monitor := dialClient(t, address(srv)), dialClient(t, address(srv))
		monitor.script("MONITOR", "+OK")
		list, _ := redis.Do(t, "CLIENT", "LIST").(string)
		own := 0
		for line := range strings.Lines(list) {
			id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
			if id != mine && !strings.Contains(line, "cmd=client|list") {
				own++
			}
			for _, got := range []string{
				c.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id),
				c.quiet("client", "tracking", "on", "bcast", "prefix", "redirect", "noloop", "redirect", id),
				c.quiet("MULTI") + c.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id) + c.quiet("EXEC"),
			} {
				if !strings.HasSuffix(got, unknown) {
					t.Errorf("TRACKING: %q for %s", got, line)
				}
			}
			if got := c.quiet("CLIENT", "UNBLOCK", id, "ERROR"); got != ":0\r\n" {
				t.Errorf("UNBLOCK: %q for %s", got, line)
			}
		}
		if own < 5 {
			t.Errorf("%d connections of the proxy in %s", own, list)
		}
		redis.Do(t, "RPUSH", "empty", "v")
		if got, err := waiter.frame(); !strings.HasPrefix(got, "*2\r\n") || err != nil {
			t.Errorf("BLPOP: %q, %v", got, err)
		}
	})
}

// The id is the client's even in the answers to commands that were sent before the redirection was answered.
func TestRedirectionIsKnownInAPipeline(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		for _, tx := range [][2]string{{"PING", "PING"}, {"MULTI", "EXEC"}} {
			c := dialClient(t, address(srv))
			id := c.id()
			c.raw(inline(tx[0], "CLIENT TRACKING ON REDIRECT "+id, "CLIENT TRACKINGINFO", "CLIENT GETREDIR", tx[1], "ECHO end"))
			var got string
			for !strings.Contains(got, "end\r\n") {
				b, err := c.frame()
				if err != nil {
					t.Fatal(err)
				}
				got += b
			}
			if !strings.Contains(got, "redirect\r\n:"+id+"\r\n") || strings.Count(got, ":"+id+"\r\n") != 2 {
				t.Errorf("%s: %q, the id is %s", tx[0], got, id)
			}
		}
	})
}

// A client that others redirect to has, from then on, a connection of its own, and it keeps it.
func TestTrackingRedirectsToAClientWithoutAConnection(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		admin := named(t, address(srv), "admin")
		for _, state := range []string{"idle", "in a transaction", "itself", "waiting for a lock", "gone"} {
			sink, c := named(t, address(srv), "sink"), named(t, address(srv), "c")
			id := sink.id()
			sink.quiet("HELLO", "3")
			want := "+OK\r\n"
			switch state {
			case "in a transaction":
				sink.quiet("MULTI")
				sink.quiet("PING")
			case "itself":
				_ = c.nc.Close()
				c = sink
			case "waiting for a lock":
				admin.quiet("LOCK", "l")
				sink.send("LOCK", "l")
				redistest.Eventually(t, patience, "the wait", func() bool { return srv.shared.Locks.Waiting() == 1 })
				want = "-ERR The client ID you want redirect to does not exist\r\n"
			case "gone":
				sink.nc.Close()
				redistest.Eventually(t, patience, "the end of the client", func() bool { return admin.listOf()["sink"] == nil })
				want = "-ERR The client ID you want redirect to does not exist\r\n"
			}
			if got := c.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != want {
				t.Errorf("%s: TRACKING: %q, want %q", state, got, want)
			}
			if want == "+OK\r\n" {
				if state == "in a transaction" {
					sink.quiet("EXEC")
				}
				c.quiet("GET", state)
				admin.quiet("SET", state, "v")
				if got, err := sink.frame(); !strings.HasPrefix(got, ">2\r\n$10\r\ninvalidate\r\n") || err != nil {
					t.Errorf("%s: %q, %v", state, got, err)
				}
			}
			if got := c.quiet("PING"); got != "+PONG\r\n" {
				t.Errorf("%s: %q", state, got)
			}
			if state == "idle" { // what tells the client that its target has gone has the target's id
				c.quiet("HELLO", "3")
				c.quiet("GET", state)
				sink.nc.Close()
				redistest.Eventually(t, patience, "the end of the target", func() bool { return admin.listOf()["sink"] == nil })
				got, told := "", false
				redistest.Eventually(t, patience, "word of it", func() bool {
					admin.quiet("SET", state, "v2")
					if got, told = c.frameWithin(100 * time.Millisecond); !told { // Redis had not noticed it yet, and tells of a key once
						got = c.quiet("GET", state)
					}
					return got[0] == '>'
				})
				if got != ">2\r\n$21\r\ntracking-redir-broken\r\n:"+id+"\r\n" {
					t.Errorf("%q", got)
				}
			}
			for _, p := range []*peer{sink, c} {
				_ = p.nc.Close()
			}
			redistest.Eventually(t, patience, "the clients to be gone", func() bool { return len(admin.listOf()) == 1 })
		}
	})
}

// A CLIENT LIST keeps its place among the replies, however long it takes, and commands of others do not wait for it.
func TestListOfManyClients(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		const n = 500
		for i := range n {
			c := dialClient(t, address(srv))
			c.raw(inline("CLIENT SETNAME c" + strconv.Itoa(i)))
			defer c.nc.Close()
		}
		admin := dialClient(t, address(srv))
		redistest.Eventually(t, patience, "all to be there", func() bool { return srv.shared.Clients.Len() == n+1 })
		var ids []string
		for _, l := range admin.listOf() {
			ids = append(ids, string(l.Field("id")))
		}
		if len(ids) != n+1 {
			t.Errorf("%d clients are listed, want %d", len(ids), n+1)
		}
		for range 5 {
			admin.send("CLIENT", "LIST")
			admin.send("ECHO", "x")
			admin.send(append([]string{"CLIENT", "LIST", "ID"}, ids...)...)
			admin.send("PING")
		}
		for range 5 {
			for _, want := range []string{"id=", "x", "id=", "PONG"} {
				if got, err := admin.frame(); !strings.Contains(got, want) || err != nil {
					t.Fatalf("%.50q, %v, want %s", got, err, want)
				}
			}
		}
	})
}

// Killing everybody while everybody asks: nothing deadlocks, and nobody gets a reply that is not to its command.
func TestClientsAskAndKillAtOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		done := make(chan struct{})
		const n = 8
		for i := range n {
			go func() {
				defer func() { done <- struct{}{} }()
				for j := range 30 {
					nc, err := net.Dial("tcp", address(srv))
					if err != nil {
						t.Error(err)
						return
					}
					c := &peer{t: t, nc: nc, side: &side{t: t}}
					c.raw(inline("CLIENT LIST", "CLIENT INFO", "CLIENT KILL TYPE normal SKIPME "+[]string{"yes", "no"}[(i+j)%2], "INFO clients"))
					for _, want := range []string{"$", "$", ":", "$"} {
						b, err := c.frame()
						if errors.Is(err, errTimeout) || err == nil && !strings.HasPrefix(b, want) {
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
		recovers(t, srv)
	})
}

// A prefix of CLIENT TRACKING may be called like the option behind it.
func TestRedirectionBehindAPrefixOfThatName(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		a, b := dialClient(t, address(srv)), dialClient(t, address(srv))
		id := strings.Trim(a.quiet("CLIENT", "ID"), ":\r\n")
		a.quiet("SUBSCRIBE", "__redis__:invalidate")
		if got := b.quiet("CLIENT", "TRACKING", "ON", "PREFIX", "redirect", "BCAST", "PREFIX", "prefix", "REDIRECT", id); got != "+OK\r\n" {
			t.Errorf("CLIENT TRACKING: %q", got)
		}
		if got := b.quiet("CLIENT", "GETREDIR"); got != ":"+id+"\r\n" {
			t.Errorf("redirected to %q, not to %s", got, id)
		}
	})
}

// A redirection to a client that is just beginning to wait, or whose login Redis judges, fails as one to a client that waits. It does not wait
// itself.
func TestTrackingRedirectsToAClientThatBeginsToWait(t *testing.T) {
	t.Parallel()
	const unknown = "-ERR The client ID you want redirect to does not exist"
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
		named(t, address(srv), "admin").quiet("LOCK", "k")
		first := named(t, address(srv), "first")
		for what, begin := range map[string]func(sink *peer){
			"a lock": func(sink *peer) { sink.send("LOCK", "k") },
			"an element": func(sink *peer) {
				first.send("BLPOP", "l", "0") // takes the connection that is ready
				redistest.Eventually(t, patience, "the first waiter", func() bool { return srv.sessionOf(first).Status().Pin == "blpop" })
				sink.send("BLPOP", "l", "0")
			},
			"a login": func(sink *peer) { sink.send("AUTH", "app", "pw") },
		} {
			sink, c := named(t, address(srv), "sink"), named(t, address(srv), "c")
			id := sink.id()
			redis.Pause()
			begin(sink)
			redistest.Eventually(t, patience, what, func() bool { return srv.sessionOf(sink).Status().Unanswered > 0 })
			c.send("CLIENT", "TRACKING", "ON", "REDIRECT", id)
			redistest.Eventually(t, patience, "the refusal to be asked for", func() bool {
				st := srv.sessionOf(c).Status()
				return st.State == "" && st.Unanswered > 0
			})
			redis.Continue()
			c.expectReply(unknown)
		}
	})
}

// The proxy asks Redis for the id of a client's connection when another client names it, but not in the middle of a transaction.
func TestAnIDIsNotAskedForInATransaction(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		redis := redistest.Start(t, "--requirepass", "pw")
		redis.Do(t, "ACL", "SETUSER", "open", "reset", "on", "nopass", "~*", "&*", "+@all")
		srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
		c, other := dialClient(t, address(srv)), dialClient(t, address(srv))
		other.quiet("AUTH", "pw")
		if got := c.quiet("HELLO", "3", "AUTH", "open", "x", "BAD"); got[0] != '-' { // it has logged in, on a connection without a known id
			t.Fatal(got)
		}
		id := strings.Trim(c.quiet("CLIENT", "ID"), ":\r\n")
		c.script("MULTI", "+OK")
		other.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id)
		c.script("PING", "+QUEUED")
		if got := c.quiet("EXEC"); got != "*1\r\n+PONG\r\n" {
			t.Errorf("%s: EXEC = %q", engine, got)
		}
		if got := other.quiet("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != "+OK\r\n" {
			t.Errorf("%s: after the transaction: %q", engine, got)
		}
	}
}
