package clients

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// TestWhoComesAfterAPasswordWasSetNeedsIt sets it while clients without credentials are connected, hold locks and wait.
func TestWhoComesAfterAPasswordWasSetNeedsIt(t *testing.T) {
	t.Parallel()
	shut := map[string][]any{
		"requirepass": {"CONFIG", "SET", "requirepass", "pw"},
		"password":    {"ACL", "SETUSER", "default", "resetpass", ">pw"},
		"off":         {"ACL", "SETUSER", "default", "off"},
	}
	for name, cmd := range shut {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis)
			admin := proxytest.Dial(t, redis.Addr())
			admin.Script("PING", "+PONG")
			holder, waiter, reset := srv.Dial(t), srv.Dial(t), srv.Dial(t)
			holder.Script("LOCK k", ":", "SET a 1", "+OK")
			waiter.Script("PING", "+PONG")
			reset.Script("SET b 1", "+OK", "LOCK r", ":")
			waiter.Send("LOCK", "k")
			proxytest.WaitFor(t, "the waiter, and the proxy's connections for it", func() bool {
				return srv.Stats().Waiting == 1 && srv.Stats().Attempts > 0
			})
			words := make([]string, len(cmd))
			for i, w := range cmd {
				words[i] = w.(string)
			}
			if got := admin.Do(words...); got != "+OK\r\n" {
				t.Fatal(got)
			}
			srv.AwaitShut(t)
			for _, first := range []string{"LOCK k", "LOCK free", "TRYLOCK free", "LOCKLIST", "GET a", "UNLOCK k", "LOCKINFO k", "FORCEUNLOCK k", "MULTI", "BLPOP l 0", "PUBLISH c m", "HELLO 3", "SELECT 1"} {
				late := srv.Dial(t)
				late.Script(first, "-NOAUTH", "LOCKLIST", "-NOAUTH", "FORCEUNLOCK k", "-NOAUTH", "GET a", "-NOAUTH")
			}
			reset.Script("RESET", "+RESET", "GET b", "-NOAUTH", "LOCKLIST", "-NOAUTH", "UNLOCK r", "-NOAUTH")
			// Who was there before goes on.
			holder.Script("GET a", "$1", "LOCKLIST", "*2", "UNLOCK k", ":1")
			waiter.Gets(":")
			waiter.Script("UNLOCK k", ":1", "GET a", "$1")
			if name != "off" {
				late := srv.Dial(t)
				late.Script("GET a", "-NOAUTH", "AUTH pw", "+OK", "LOCK k", ":", "UNLOCK k", ":1", "GET a", "$1")
				reset.Script("AUTH pw", "+OK", "UNLOCK r", ":1")
			}
		})
	}
}

// A connection that Redis accepted between two demands serves only the clients that have it.
func TestAShortOpeningLetsNoLaterClientIn(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK", "CONFIG SET requirepass pw", "+OK")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Upstream.Password = "pw"
	})
	srv.AwaitShut(t)
	era := srv.Shared().Upstream.Era()
	admin.Quiet("CONFIG", "SET", "requirepass", "")
	early := srv.Dial(t)
	early.Script("GET k", "$6")
	admin.Script("CONFIG SET requirepass pw", "+OK")
	proxytest.WaitFor(t, "the next era", func() bool { return srv.Shared().Upstream.Era() > era })
	srv.Dial(t).Script("GET k", "-NOAUTH", "TRYLOCK l", "-NOAUTH", "LOCKLIST", "-NOAUTH", "MULTI", "-NOAUTH")
	early.Script("GET k", "$6")
}

// Clients that come while Redis is open do not share the lane of clients that it has refused, which has no rights to keep.
func TestAClientOfAnOpenRedisKeepsItsRights(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK", "CONFIG SET requirepass pw", "+OK")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Upstream.Password = "pw"
	})
	srv.AwaitShut(t)
	srv.Dial(t).Script("GET k", "-NOAUTH") // its lane stays for a while
	admin.Quiet("CONFIG", "SET", "requirepass", "")
	proxytest.WaitFor(t, "the end of the demand", func() bool { return !srv.Shared().Upstream.NeedsAuth() })
	c := srv.Dial(t)
	c.Script("GET k", "$6", "LOCK l", ":")
	admin.Script("CONFIG SET requirepass pw", "+OK")
	srv.AwaitShut(t)
	c.Script("GET k", "$6", "UNLOCK l", ":1")
}

// A connection that Redis refused between two answers that it is open serves no client that comes after the next one.
func TestAShortDemandLeavesNoRefusedLane(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK")
	srv := proxytest.Start(t, redis)
	admin.Script("CONFIG SET requirepass pw", "+OK")
	early := srv.Dial(t)
	early.Script("GET k", "-NOAUTH")
	admin.Quiet("CONFIG", "SET", "requirepass", "")
	proxytest.WaitFor(t, "a connection that Redis has not refused", func() bool {
		return strings.HasPrefix(srv.Dial(t).Do("HELLO", "2"), "*")
	})
	early.Script("GET k", "$6")
}

// A client that came while Redis demanded credentials has the limits of others when Redis is open.
func TestTheLimitsOfStrangersEndWithTheDemand(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("CONFIG SET requirepass pw", "+OK")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Password = "pw" })
	srv.AwaitShut(t)
	c := srv.Dial(t)
	c.Script("GET k", "-NOAUTH")
	admin.Quiet("CONFIG", "SET", "requirepass", "")
	proxytest.WaitFor(t, "the end of the demand", func() bool { return !srv.Shared().Upstream.NeedsAuth() })
	c.Script("SET k "+strings.Repeat("v", 20_000), "+OK", "MSET a 1 b 2 c 3 d 4 e 5 f 6", "+OK", "LOCK l", ":")
}

// A client whose connection was open before Redis had a password may send commands for which Redis closes a connection
// without credentials. It shares its connection with others.
func TestNoClientEndsTheLaneOfOthersByALongCommand(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	c := srv.Dial(t)
	c.Script("GET k", "$-1")
	redis.Restart("--requirepass", "pw")
	proxytest.WaitFor(t, "a refusal", func() bool { return strings.HasPrefix(c.Do("GET", "k"), "-NOAUTH") })
	_, before := srv.Shared().Upstream.Lanes.Counts()
	c.Script("MSET a 1 b 2 c 3 d 4 e 5 f 6", "-NOAUTH", "SET k "+strings.Repeat("v", 20_000), "-NOAUTH", "LOCK l", "-NOAUTH")
	c.Raw(proxytest.Inline("MSET a 1 b 2 c 3 d 4 e 5 f 6", "SET k 1"))
	c.Gets("-NOAUTH", "-NOAUTH")
	if _, now := srv.Shared().Upstream.Lanes.Counts(); now != before {
		t.Errorf("%d connections were lost", now-before)
	}
}

// Redis may demand credentials while it refuses those of the proxy.
func TestADemandIsNoticedWithoutCredentialsOfTheProxy(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK")
	srv, _ := proxytest.Launch(t, proxy.Options{
		Listen:   []string{"127.0.0.1:0"},
		Upstream: upstream.Options{Addr: redis.Addr(), User: "own", Password: "wrong"},
	})
	srv.Dial(t).Script("GET k", "$6")
	admin.Script("CONFIG SET requirepass pw", "+OK")
	srv.AwaitShut(t)
	srv.Dial(t).Script("GET k", "-NOAUTH")
}

// TestBorrowedCredentialsCannotBeExchanged tries to become somebody else where all clients are to use the proxy's user.
func TestBorrowedCredentialsCannotBeExchanged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "root", "on", ">pw", "~*", "&*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "proxy", "on", ">hunter2", "~p:*", "&*", "+@all", "-acl", "+acl|whoami")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.ClientAuth = proxy.AuthNone
		o.Upstream.User, o.Upstream.Password = "proxy", "hunter2"
	})
	for _, attack := range []string{
		"AUTH root pw", "HELLO 2 AUTH root pw", "HELLO 2 AUTH a b AUTH root pw", "HELLO 2 AUTH a b AUTH c d AUTH root pw",
		"HELLO 2 SETNAME auth AUTH root pw", "HELLO 2 SETNAME n AUTH root pw", "HELLO 2 AUTH AUTH AUTH AUTH root pw",
		"HELLO 2 AUTH root pw BAD", "HELLO 2 BAD AUTH root pw", "hello 2 aUtH root pw",
	} {
		c := srv.Dial(t)
		whoami := func(when string) {
			t.Helper()
			c.Send("ACL", "WHOAMI")
			if got, err := c.Frame(); err != nil || got != "$5\r\nproxy\r\n" {
				t.Errorf("%s, %s: %q, %v", attack, when, got, err)
			}
		}
		c.Do(strings.Fields(attack)...)
		whoami("plain")
		c.Script("MULTI", "+OK", attack, "+QUEUED")
		if got := c.Do("EXEC"); strings.HasPrefix(attack, "AUTH") && got != "*1\r\n+OK\r\n" {
			t.Errorf("%s: EXEC %q", attack, got)
		}
		whoami("after a transaction")
		c.Script("WATCH p:1", "+OK")
		c.Do(strings.Fields(attack)...)
		whoami("on a pin")
		c.Script("UNWATCH", "+OK", "SUBSCRIBE ch", "*3", attack, "-ERR Can't execute", "UNSUBSCRIBE", "*3")
		whoami("after a subscription")
		c.Raw(proxytest.Inline(attack, "GET r", "ACL WHOAMI"))
		for range 2 {
			_, _ = c.Frame()
		}
		if got, err := c.Frame(); err != nil || got != "$5\r\nproxy\r\n" {
			t.Errorf("%s inline: %q, %v", attack, got, err)
		}
		c.Script("RESET", "+RESET")
		c.Do(strings.Fields(attack)...)
		whoami("after RESET")
		c.Script("MONITOR", "+OK")
		c.Raw(proxytest.Inline(attack, "ACL WHOAMI"))
		for {
			got, err := c.Frame()
			if err != nil || strings.Contains(got, "root") && !strings.HasPrefix(got, "+") {
				t.Errorf("%s of a monitor: %q, %v", attack, got, err)
			}
			if err != nil || strings.HasPrefix(got, "$5\r\nproxy") {
				break
			}
		}
	}
}

// TestWhoCameBeforeAPasswordWasSetMayLogIn has clients without credentials where Redis lets in no new connection as they are.
func TestWhoCameBeforeAPasswordWasSetMayLogIn(t *testing.T) {
	t.Parallel()
	for state, script := range map[string][]string{
		"database 0":        {"PING", "+PONG"},
		"database 9":        {"SELECT 9", "+OK", "SET k v", "+OK"},
		"RESP3":             {"HELLO 3", "%7"},
		"RESP3, database 9": {"HELLO 3", "%7", "SELECT 9", "+OK"},
		"a name":            {"SELECT 9", "+OK", "CLIENT SETNAME me", "+OK"},
		"a lock":            {"SELECT 9", "+OK", "LOCK gone", ":", "UNLOCK gone", ":1"},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis)
			admin := proxytest.Dial(t, redis.Addr())
			admin.Script("ACL SETUSER app on >pw ~* &* +@all", "+OK")
			connect := func() *proxytest.Client {
				c := srv.Dial(t)
				c.Script(append(script, "SET here 1", "+OK")...)
				return c
			}
			logins := [][]string{
				{"AUTH pw", "+OK"},
				{"AUTH default pw", "+OK"},
				{"AUTH app pw", "+OK"},
				{"HELLO 2 AUTH default pw", "*14"},
				{"HELLO 3 AUTH app pw SETNAME me", "%7"},
				{"HELLO 3 SETNAME me AUTH app pw", "%7"},
			}
			clients := make([]*proxytest.Client, len(logins))
			for i := range clients {
				clients[i] = connect()
			}
			refused, reset := connect(), connect()
			ended := map[string]*proxytest.Client{"MULTI": connect(), "WATCH k": connect()}
			admin.Script("CONFIG SET requirepass pw", "+OK")
			srv.AwaitShut(t) // it has closed spare connections
			for i, c := range clients {
				c.Script("GET here", "$1", "AUTH wrong", "-WRONGPASS", "HELLO 2 AUTH app wrong SETNAME x", "-WRONGPASS", "GET here", "$1")
				c.Script(logins[i]...)
				c.Script("GET here", "$1", "MULTI", "+OK", "GET here", "+QUEUED", "EXEC", "*1", "LOCK l", ":", "UNLOCK l", ":1",
					"BLPOP here 0", "-WRONGTYPE", "SELECT 7", "+OK", "ECHO x", "$1")
			}
			// A connection of its own is refused in Redis's words.
			for _, cmd := range []string{"BLPOP l 0", "SUBSCRIBE c", "HELLO 2", "HELLO 3", "MONITOR", "WAIT 0 0"} {
				refused.Script(cmd, "-NOAUTH", "GET here", "$1")
			}
			for cmd, c := range ended { // what the client may have sent behind it does not run
				c.Script(cmd, "-NOAUTH")
				if state != "database 0" { // there Redis has judged the command, on a connection without credentials
					c.Ends()
				}
			}
			refused.Script("AUTH app pw", "+OK", "MULTI", "+OK", "GET here", "+QUEUED", "EXEC", "*1")
			reset.Script("RESET", "+RESET", "GET here", "-NOAUTH", "SELECT 9", "-NOAUTH", "AUTH pw", "+OK", "SELECT 9", "+OK", "MULTI", "+OK")
		})
	}
}

// TestLossOfARightDoesNotKeepFromLoggingIn takes away, while a user is connected, what a new connection like the user's would need.
func TestLossOfARightDoesNotKeepFromLoggingIn(t *testing.T) {
	t.Parallel()
	for name, cmd := range map[string]string{
		"SELECT": "ACL SETUSER app -select", "password": "ACL SETUSER app resetpass >other", "off": "ACL SETUSER app off",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis)
			admin := proxytest.Dial(t, redis.Addr())
			admin.Script("ACL SETUSER app on >pw ~* &* +@all", "+OK", "ACL SETUSER next on >pw ~* &* +@all", "+OK")
			auth, hello := srv.Dial(t), srv.Dial(t)
			for _, c := range []*proxytest.Client{auth, hello} {
				c.Script("AUTH app pw", "+OK", "SELECT 9", "+OK", "SET here 1", "+OK")
			}
			admin.Script(cmd, "+OK")
			if name == "SELECT" {
				auth.Script("SELECT 8", "-NOPERM", "GET here", "$1")
			}
			auth.Script("AUTH next wrong", "-WRONGPASS", "ACL WHOAMI", "$3\r\napp", "AUTH next pw", "+OK", "ACL WHOAMI", "$4\r\nnext", "GET here", "$1", "MULTI", "+OK")
			hello.Script("HELLO 3 AUTH next pw", "%7", "ACL WHOAMI", "$4\r\nnext", "GET here", "$1", "MULTI", "+OK")
		})
	}
}

// A connection that was made before the password was set has rights that nobody gets without it now. It serves no other client.
func TestConnectionFromBeforeAPasswordServesNobodyElse(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	early := map[string]*proxytest.Client{"MULTI,DISCARD": nil, "WATCH k,UNWATCH": nil, "SUBSCRIBE c,RESET": nil}
	for words := range early {
		begin, _, _ := strings.Cut(words, ",")
		early[words] = srv.Dial(t)
		early[words].Quiet(strings.Fields(begin)...)
	}
	srv.Redis.Do(t, "CONFIG", "SET", "requirepass", "pw")
	srv.AwaitShut(t)
	for words, c := range early {
		_, end, _ := strings.Cut(words, ",")
		c.Script(end, "+")
	}
	proxytest.WaitFor(t, "all pins to be given back", func() bool { return len(srv.Stats().PinReasons) == 0 })
	for range 4 {
		srv.Dial(t).Script("MULTI", "-NOAUTH", "SET k v", "-NOAUTH")
	}
}
