package blackbox

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// users makes the users that the tests of this file talk about.
func users(t testing.TB, redis *redistest.Server) {
	t.Helper()
	redis.Do(t, "ACL", "SETUSER", "alice", "reset", "on", ">pw", "~alice:*", "&alice:*", "+@all", "-@dangerous", "-ping", "+client|id", "-client|setname", "-client|reply")
	redis.Do(t, "ACL", "SETUSER", "bob", "reset", "on", ">pw", "~bob:*", "%R~shared:*", "&bob:*", "+get", "+set", "+multi", "+exec", "+blpop", "+subscribe", "+client|getname", "+select|1")
	redis.Do(t, "ACL", "SETUSER", "off", "reset", "off", ">pw", "~*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "open", "reset", "on", "nopass", "~*", "&*", "+@all")
}

func TestIdentitiesAreRedisOwn(t *testing.T) {
	t.Parallel()
	everything := []string{
		"PING", "GET alice:k", "SET alice:k v", "GET bob:k", "SET bob:k v", "GET shared:k", "SET shared:k v", "MGET alice:k bob:k", "CONFIG GET port", "KEYS *",
		"CLIENT GETNAME", "CLIENT SETNAME x", "CLIENT GETNAME", "CLIENT SETINFO lib-name x", "CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY ON", "CLIENT LIST TYPE replica", "CLIENT NO-EVICT on",
		"MULTI", "GET alice:k", "SET bob:k w", "EXEC", "WATCH alice:k", "WATCH bob:k", "UNWATCH", "DISCARD", "BLPOP alice:l 0.001", "BLPOP bob:l 0.001", "SELECT 1", "SELECT 2", "GET alice:k", "SELECT 0",
		"EVAL \"return redis.call('GET','alice:k')\" 0", "PUBLISH alice:c m", "SPUBLISH bob:c m", "SCRIPT LOAD x", "WAIT 0 0", "ACL WHOAMI", "ACL GETUSER x", "MONITOR x", "ROLE", "NOSUCH", "ASKING", "RESET x", "COMMAND COUNT x",
	}
	for _, args := range [][]string{nil, {"--requirepass", "secret"}} {
		b := newBench(t, append(args, "--enable-debug-command", "yes")...)
		users(t, b.Redis)
		// Else Redis makes the buffer of a client so small that it closes one that has not authenticated, if it is slow.
		b.Redis.Do(t, "DEBUG", "REPLYBUFFER", "RESIZING", "0")
		logins := []string{
			"PING", "AUTH alice pw", "AUTH bob pw", "AUTH open anything", "AUTH open", "AUTH off pw", "AUTH alice wrong", "AUTH nosuch pw", "AUTH", "AUTH a b c", "AUTH secret", "AUTH wrong", "AUTH default secret",
			"HELLO", "HELLO 2", "HELLO 3", "HELLO 2 AUTH alice pw", "HELLO 3 AUTH bob pw SETNAME bobby", "HELLO 3 AUTH alice wrong", "HELLO 4 AUTH alice pw", "HELLO x", "HELLO 3 SETNAME", "HELLO 3 AUTH alice",
			`HELLO 3 SETNAME "bad name"`, "HELLO 3 SETNAME name", "HELLO 3 SETNAME name AUTH alice pw", "HELLO 3 AUTH alice pw AUTH bob pw",
			"RESET", "AUTH alice pw\r\nRESET", "AUTH alice pw\r\nAUTH bob wrong", "AUTH alice pw\r\nHELLO 3\r\nAUTH bob pw",
			"HELLO 3 AUTH alice pw\r\nHELLO 2 AUTH bob pw", "CLIENT SETNAME kept\r\nAUTH bob pw",
		}
		for _, login := range logins {
			t.Run(fmt.Sprintf("requirepass %v, %s", args != nil, strings.ReplaceAll(login, "\r\n", ", ")), func(t *testing.T) {
				b.compare(t, b.Proxy, func(s *proxytest.Side) {
					c := s.Client("c")
					n := strings.Count(login, "\r\n") + 1
					c.Raw(proxytest.Inline(login))
					c.Expect(n)
					for _, cmd := range everything {
						c.Raw(proxytest.Inline(cmd))
						if cmd == "CLIENT REPLY OFF" {
							c.Raw(proxytest.Inline("ACL WHOAMI"))
							continue
						}
						c.Raw(proxytest.Inline("ECHO " + strconv.Quote(cmd)))
						c.Until("") // one frame at least
					}
					c.Raw(proxytest.Inline("SUBSCRIBE alice:c", "SUBSCRIBE bob:c", "UNSUBSCRIBE", "RESET", "ECHO the-end"))
					c.Until("RESET")
					c.Expect(1)
				})
			})
		}
	}
}

// Clients of all identities at once, each of which asks who and where it is on every kind of connection: none may ever be
// told that it is somebody else.
func TestNothingTravelsOnAnothersConnection(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for i := range 4 {
		redis.Do(t, "ACL", "SETUSER", fmt.Sprint("u", i), "reset", "on", fmt.Sprint(">p", i), "~*", "&*", "+@all")
	}
	for db := range 4 {
		c := redis.Client(t)
		if err := c.Do(t.Context(), "EVAL", "redis.call('SELECT', ARGV[1]); redis.call('SET', 'db', ARGV[1]); return 1", 0, db).Err(); err != nil {
			t.Fatal(err)
		}
	}
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 8, proxytest.Patience })
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() { wander(t, srv.Addr(), i) })
	}
	wg.Wait()
}

// wander is a client that changes its identity and checks it.
func wander(t *testing.T, addr string, seed int) {
	c := proxytest.Dial(t, addr)
	check := func(user string, db, proto int) {
		null := map[int]string{2: "$-1\r\n", 3: "_\r\n"}[proto]
		dbText := fmt.Sprintf("$1\r\n%d\r\n", db)
		who := fmt.Sprintf("$%d\r\n%s\r\n", len(user), user)
		c.Raw(proxytest.Inline("ACL WHOAMI", "GET db", "GET nosuch", "MULTI", "ACL WHOAMI", "GET db", "GET nosuch", "EXEC", "ACL WHOAMI", "EVAL \"return redis.call('GET','db')\" 0"))
		want := []string{who, dbText, null, "+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*3\r\n" + who + dbText + null, who, dbText}
		for i, w := range want {
			if got, err := c.Frame(); got != w {
				t.Errorf("%s in %d, RESP%d: reply %d is %q, %v", user, db, proto, i, got, err)
			}
		}
	}
	check("default", 0, 2)
	for step := range 12 {
		n := seed*7 + step*5
		user, db, proto := n%4, n/4%4, 2+n/16%2
		c.Quiet("HELLO", strconv.Itoa(proto), "AUTH", fmt.Sprint("u", user), fmt.Sprint("p", user))
		c.Quiet("SELECT", strconv.Itoa(db))
		check(fmt.Sprint("u", user), db, proto)
		if n%3 == 0 {
			c.Quiet("RESET")
			check("default", 0, 2)
		}
	}
}

// A user who is deleted loses the connection, as directly.
func TestDeletedUserIsCutOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *proxytest.Side, c *proxytest.Client){
		"on a lane":   func(_ *proxytest.Side, c *proxytest.Client) { c.Do("GET", "k") },
		"on a pin":    func(_ *proxytest.Side, c *proxytest.Client) { c.Do("WATCH", "k") },
		"subscribed":  func(_ *proxytest.Side, c *proxytest.Client) { c.Do("SUBSCRIBE", "ch") },
		"blocked":     func(s *proxytest.Side, c *proxytest.Client) { c.Send("BLPOP", "l", "0"); s.AwaitBlocked(1) },
		"monitoring":  func(_ *proxytest.Side, c *proxytest.Client) { c.Do("MONITOR") },
		"not yet any": func(_ *proxytest.Side, c *proxytest.Client) {},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			b.compare(t, b.Proxy, func(s *proxytest.Side) {
				s.Redis.Do(t, "ACL", "SETUSER", "gone", "on", ">pw", "~*", "&*", "+@all")
				c := s.Client("c")
				c.Do("AUTH", "gone", "pw")
				script(s, c)
				s.Redis.Do(t, "ACL", "DELUSER", "gone")
				proxytest.WaitFor(t, "the end of the connection", func() bool {
					// A client that has nothing outstanding may hear of it only when it asks again.
					c.Raw(proxytest.Inline("GET k"))
					b, err := c.Frame()
					return err != nil && b == ""
				})
			})
		})
	}
}

// A user without the right to SELECT keeps the database in which it has logged in. No new connection gets there, so the
// session keeps the one that is there.
func TestALoginWithoutTheRightToSelectKeepsItsDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Redis.Do(t, "ACL", "SETUSER", "poor", "reset", "on", ">pw", ">other", "~*", "&*", "+@all", "-select")
	b.Redis.Do(t, "EVAL", "redis.call('SELECT', 9) return redis.call('SET', 'k', 'nine')", 0)
	srv := b.Proxy
	c := srv.Dial(t)
	c.Script("SELECT 9", "+OK", "AUTH poor pw", "+OK", "GET k", "$4\r\nnine", "LOCK l", "-NOPERM ", "GET k", "$4\r\nnine")
	if n := srv.Stats().PinReasons["auth"]; n != 1 {
		t.Errorf("%d connections count as pins", n)
	}
	c.Script("AUTH default x", "+OK", "GET k", "$4\r\nnine", "LOCK l", ":", "UNLOCK l", ":1")
	proxytest.WaitFor(t, "the pin to be given back", func() bool { return len(srv.Stats().PinReasons) == 0 })

	d := srv.Dial(t)
	d.Script("SELECT 9", "+OK", "AUTH poor pw", "+OK", "ACL WHOAMI", "$4\r\npoor")
	_ = d.Conn.Close()
	proxytest.WaitFor(t, "the pin to be closed", func() bool { return len(srv.Stats().PinReasons) == 0 })
	srv.Redis.Do(t, "ACL", "SETUSER", "poor", "+select")
	e := srv.Dial(t)
	e.Script("SELECT 9", "+OK", "AUTH poor pw", "+OK", "GET k", "$4\r\nnine")
	proxytest.WaitFor(t, "no pin to be kept", func() bool { return len(srv.Stats().PinReasons) == 0 })
	srv.Redis.Do(t, "ACL", "SETUSER", "poor", "-select")

	full := proxytest.Start(t, b.Redis, func(o *proxy.Options) { o.Upstream.Pins.Max = 1 })
	full.Dial(t).Script("WATCH k", "+OK")
	f := full.Dial(t)
	f.Script("SELECT 9", "+OK", "AUTH poor pw", "+OK")
	f.Ends() // no connection may be kept
}

// One client that walks through all databases leaves few connections behind.
func TestWalkThroughDatabases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "1000")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes, o.Upstream.Pins.Max, o.MaxEngines = 64, 20, 8 })
	c := srv.Dial(t)
	for db := range 200 {
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
		c.Gets("+OK", "+OK", "+OK", "*0", ":", ":1")
	}
	if n := srv.Stats().Lanes; n > 8 {
		t.Errorf("%d lanes", n)
	}
	if s := srv.Stats(); s.PinsOpen > 16 {
		t.Errorf("%d pins", s.PinsOpen)
	}
	proxytest.WaitFor(t, "the connections to be few", func() bool {
		return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "\n") < 60
	})
}

// Over the limit of lanes a client is told so, another address still gets one, and nothing hangs.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes = 8 })
	var residents []*proxytest.Client
	for db := 1; db <= 6; db++ {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v"))
		c.Gets("+OK", "+OK")
		residents = append(residents, c)
	}
	const full = "-OVERLOADED no connection to share is free for this identity"
	late := srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 50", "SET k v")) // SET is not for the database of before
	late.Gets(full)
	late.Ends()
	late = srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 3", "GET k", "MULTI", "SELECT 50", "EXEC"))
	late.Gets("+OK", "$1", "+OK", "+QUEUED", "*1")
	late.Raw(proxytest.Inline("GET k", "SELECT 0", "PING")) // EXEC's own connection serves nothing more
	late.Gets(full, "+OK", "+PONG")
	other := proxytest.DialFrom(t, "127.0.0.2", srv.Addr())
	other.Raw(proxytest.Inline("SELECT 50", "SET k v"))
	other.Gets("+OK", "+OK")
	_ = residents[0].Conn.Close() // its lane is not used any more
	proxytest.WaitFor(t, "the lane to be given up", func() bool {
		late = srv.Dial(t)
		late.Send("SELECT", "51")
		got, err := late.Frame()
		return err == nil && got == "+OK\r\n"
	})
	late.Send("SET", "k", "v")
	late.Gets("+OK")
}

func TestDefaultOwnersCannotBeGuessedNorNamed(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	ownerOf := func(c *proxytest.Client, key string) string {
		c.Script("LOCK "+key, ":")
		fields, _ := srv.Redis.Do(t, "HKEYS", key).([]any)
		for _, f := range fields {
			if name := f.(string); name != "fence" && name != "mode" && !strings.HasPrefix(name, "{") {
				return f.(string)
			}
		}
		t.Fatalf("no owner in %v", fields)
		return ""
	}
	a, b := srv.Dial(t), srv.Dial(t)
	first, again, second := ownerOf(a, "one"), ownerOf(a, "two"), ownerOf(b, "three")
	const session, process = 36 + 1 + 12, 36
	if first == again || first[:session+1] != again[:session+1] || first[:session] == second[:session] ||
		first[:process+1] != second[:process+1] {
		t.Errorf("owners %s and %s of one connection, %s of another", first, again, second)
	}
	for _, command := range []string{"UNLOCK one OWNER ", "EXTENDLOCK one PX 1 OWNER ", "LOCK one OWNER "} {
		b.Raw(command + first + "\r\n")
		b.Gets("-ERR OWNER cannot be the default owner of a connection\r\n")
	}
	a.Script("UNLOCK one", ":1")
}
