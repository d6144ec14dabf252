package proxy

import (
	"strings"
	"testing"

	"lockproxy/internal/redistest"
)

// TestWhoComesAfterAPasswordWasSetNeedsIt sets it while clients without credentials are connected, hold locks and wait.
func TestWhoComesAfterAPasswordWasSetNeedsIt(t *testing.T) {
	t.Parallel()
	shut := map[string][]any{
		"requirepass": {"CONFIG", "SET", "requirepass", "pw"},
		"password":    {"ACL", "SETUSER", "default", "resetpass", ">pw"},
		"off":         {"ACL", "SETUSER", "default", "off"},
	}
	for _, engine := range engines() {
		for name, cmd := range shut {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
				admin := dialClient(t, redis.Addr())
				admin.script("PING", "+PONG")
				holder, waiter, reset := dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))
				holder.script("LOCK k", ":", "SET a 1", "+OK")
				waiter.script("PING", "+PONG")
				reset.script("SET b 1", "+OK", "LOCK r", ":")
				waiter.send("LOCK", "k")
				redistest.Eventually(t, patience, "the waiter, and the proxy's connections for it", func() bool {
					return srv.Stats().Waiting == 1 && srv.Stats().Attempts > 0
				})
				words := make([]string, len(cmd))
				for i, w := range cmd {
					words[i] = w.(string)
				}
				if got := admin.do(words...); got != "+OK\r\n" {
					t.Fatal(got)
				}
				// At once: no time for the proxy to have noticed by itself.
				for _, first := range []string{"LOCK k", "LOCK free", "TRYLOCK free", "LOCKLIST", "GET a", "UNLOCK k", "LOCKINFO k", "FORCEUNLOCK k", "MULTI", "BLPOP l 0", "PUBLISH c m", "HELLO 3", "SELECT 1"} {
					late := dialClient(t, address(srv))
					late.script(first, "-NOAUTH", "LOCKLIST", "-NOAUTH", "FORCEUNLOCK k", "-NOAUTH", "GET a", "-NOAUTH")
				}
				reset.script("RESET", "+RESET", "GET b", "-NOAUTH", "LOCKLIST", "-NOAUTH", "UNLOCK r", "-NOAUTH")
				// Who was there before goes on.
				holder.script("GET a", "$1", "LOCKLIST", "*2", "UNLOCK k", ":1")
				if got, err := waiter.frame(); err != nil || got[0] != ':' {
					t.Fatalf("%q, %v", got, err)
				}
				waiter.script("UNLOCK k", ":1", "GET a", "$1")
				if name != "off" {
					late := dialClient(t, address(srv))
					late.script("GET a", "-NOAUTH", "AUTH pw", "+OK", "LOCK k", ":", "UNLOCK k", ":1", "GET a", "$1")
					reset.script("AUTH pw", "+OK", "UNLOCK r", ":1")
				}
			})
		}
	}
}

// TestDoorIsAskedOnceForMany has many clients come at once.
func TestDoorIsAskedForAllWhoCome(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := startProxy(t, redis)
	clients := make([]*peer, 200)
	for i := range clients {
		clients[i] = dialClient(t, address(srv))
		clients[i].send("PING")
	}
	for _, c := range clients {
		if got, err := c.frame(); err != nil || got != "+PONG\r\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	redis.Kill()
	late := dialClient(t, address(srv))
	late.script("GET a", "-NOUPSTREAM")
}

// TestBorrowedCredentialsCannotBeExchanged tries to become somebody else where all clients are to use the proxy's user.
func TestBorrowedCredentialsCannotBeExchanged(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			redis.Do(t, "ACL", "SETUSER", "root", "on", ">pw", "~*", "&*", "+@all")
			redis.Do(t, "ACL", "SETUSER", "proxy", "on", ">hunter2", "~p:*", "&*", "+@all", "-acl", "+acl|whoami")
			srv := startProxy(t, redis, func(o *Options) {
				o.Engine, o.ClientAuth = engine, AuthNone
				o.Upstream.User, o.Upstream.Password = "proxy", "hunter2"
			})
			for _, attack := range []string{
				"AUTH root pw", "HELLO 2 AUTH root pw", "HELLO 2 AUTH a b AUTH root pw", "HELLO 2 AUTH a b AUTH c d AUTH root pw",
				"HELLO 2 SETNAME auth AUTH root pw", "HELLO 2 SETNAME n AUTH root pw", "HELLO 2 AUTH AUTH AUTH AUTH root pw",
				"HELLO 2 AUTH root pw BAD", "HELLO 2 BAD AUTH root pw", "hello 2 aUtH root pw",
			} {
				c := dialClient(t, address(srv))
				whoami := func(when string) {
					t.Helper()
					c.send("ACL", "WHOAMI")
					if got, err := c.frame(); err != nil || got != "$5\r\nproxy\r\n" {
						t.Errorf("%s, %s: %q, %v", attack, when, got, err)
					}
				}
				c.do(strings.Fields(attack)...)
				whoami("plain")
				c.script("MULTI", "+OK")
				if got := c.do(strings.Fields(attack)...); !strings.HasPrefix(got, "+QUEUED") {
					t.Errorf("%s in MULTI: %q", attack, got)
				}
				if got := c.do("EXEC"); strings.HasPrefix(attack, "AUTH") && got != "*1\r\n+OK\r\n" {
					t.Errorf("%s: EXEC %q", attack, got)
				}
				whoami("after a transaction")
				c.script("WATCH p:1", "+OK")
				c.do(strings.Fields(attack)...)
				whoami("on a pin")
				c.script("UNWATCH", "+OK", "SUBSCRIBE ch", "*3")
				if got := c.do(strings.Fields(attack)...); !strings.HasPrefix(got, "-ERR Can't execute") {
					t.Errorf("%s of a subscriber: %q", attack, got)
				}
				c.script("UNSUBSCRIBE", "*3")
				whoami("after a subscription")
				c.raw(inline(attack, "GET r", "ACL WHOAMI"))
				for range 2 {
					_, _ = c.frame()
				}
				if got, err := c.frame(); err != nil || got != "$5\r\nproxy\r\n" {
					t.Errorf("%s inline: %q, %v", attack, got, err)
				}
				c.script("RESET", "+RESET")
				c.do(strings.Fields(attack)...)
				whoami("after RESET")
				c.script("MONITOR", "+OK")
				c.raw(inline(attack, "ACL WHOAMI"))
				for {
					got, err := c.frame()
					if err != nil || strings.Contains(got, "root") && !strings.HasPrefix(got, "+") {
						t.Errorf("%s of a monitor: %q, %v", attack, got, err)
					}
					if err != nil || strings.HasPrefix(got, "$5\r\nproxy") {
						break
					}
				}
			}
		})
	}
}
