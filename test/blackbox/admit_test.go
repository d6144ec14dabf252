package blackbox

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A demand closes the clients that have not logged in, whatever they do, and ends their locks. The others go on.
func TestADemandClosesWhoHasNotLoggedIn(t *testing.T) {
	t.Parallel()
	for name, words := range map[string][]string{
		"requirepass": {"CONFIG", "SET", "requirepass", "pw"},
		"password":    {"ACL", "SETUSER", "default", "resetpass", ">pw"},
		"off":         {"ACL", "SETUSER", "default", "off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			core, logs := observer.New(zap.WarnLevel)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
			admin := proxytest.Dial(t, redis.Addr())
			admin.Script("ACL SETUSER app on >pw ~* &* +@all", "+OK")
			app, holder, waiter := srv.Dial(t), srv.Dial(t), srv.Dial(t)
			app.Script("AUTH app pw", "+OK", "SET a 1", "+OK", "LOCK own", ":")
			holder.Script("LOCK k GRACE 0", ":", "SET a 1", "+OK")
			ended := []*proxytest.Client{holder, waiter}
			waiter.Send("LOCK", "k")
			for _, words := range []string{"PING", "MULTI", "WATCH k", "SUBSCRIBE c", "HELLO 3", "SELECT 9", "CLIENT SETNAME x"} {
				c := srv.Dial(t)
				c.Quiet(strings.Fields(words)...)
				ended = append(ended, c)
			}
			blocked := srv.Dial(t)
			blocked.Send("BLPOP", "l", "0")
			proxytest.WaitFor(t, "two waits", func() bool { return srv.Stats().Waiting == 1 && srv.Stats().PinReasons["blpop"] == 1 })
			if got := admin.Do(words...); got != "+OK\r\n" {
				t.Fatal(got)
			}
			for _, c := range append(ended, blocked) {
				c.Ends()
			}
			proxytest.WaitFor(t, "the end of the lock", func() bool { return admin.Quiet("EXISTS", "k") == ":0\r\n" })
			admin.Script("RPUSH l x", ":1", "LLEN l", ":1") // nobody waits any more
			app.Script("GET a", "$1", "UNLOCK own", ":1", "MULTI", "+OK", "EXEC", "*0")
			for _, first := range []string{"LOCK k", "LOCKLIST", "GET a", "FORCEUNLOCK k", "MULTI", "BLPOP l 0", "PUBLISH c m", "HELLO 3", "SELECT 1", "SUBSCRIBE c", "MONITOR", "RESET x"} {
				late := srv.Dial(t)
				late.Script(first, "-", "LOCKLIST", "-NOAUTH", "GET a", "-NOAUTH", "HELLO", "-NOAUTH HELLO must", "RESET", "+RESET", "GET a", "-NOAUTH Authentication required.\r\n")
			}
			late := srv.Dial(t)
			late.Script("AUTH app wrong", "-WRONGPASS", "GET a", "-NOAUTH", "HELLO 3 AUTH app pw SETNAME me", "%7", "GET a", "$1", "LOCK k", ":", "UNLOCK k", ":1",
				"RESET", "+RESET", "GET a", "-NOAUTH")
			closed := logs.FilterMessageSnippet("redis has begun to demand a login").All()
			if len(closed) != 1 || closed[0].ContextMap()["clients"] != int64(len(ended)+1) {
				t.Errorf("%v; %d clients are closed", closed, len(ended)+1)
			}
		})
	}
}

// A demand that has ended refuses nobody, and one that has begun anew serves nobody on a connection from before.
func TestADemandThatComesAndGoes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK", "CONFIG SET requirepass pw", "+OK")
	srv := proxytest.Start(t, redis)
	for range 3 {
		refused, pinned := srv.Dial(t), srv.Dial(t)
		refused.Script("GET k", "-NOAUTH")
		pinned.Script("AUTH pw", "+OK", "MULTI", "+OK", "RESET", "+RESET", "MULTI", "-NOAUTH", "GET k", "-NOAUTH")
		reset := srv.Dial(t)
		reset.Script("AUTH pw", "+OK", "GET k", "$6")
		reset.Raw("RESET\r\nGET k\r\nSET k v\r\nAUTH pw\r\nGET k\r\n")
		reset.Gets("+RESET", "-NOAUTH", "-NOAUTH", "+OK", "$6")
		admin.Quiet("CONFIG", "SET", "requirepass", "")
		refused.Script("GET k", "$6", "LOCK l", ":", "UNLOCK l", ":1", "MULTI", "+OK", "GET k", "+QUEUED", "EXEC", "*1", "SUBSCRIBE c", "*3")
		pinned.Script("MULTI", "+OK", "GET k", "+QUEUED", "EXEC", "*1")
		admin.Script("CONFIG SET requirepass pw", "+OK")
		awaitShut(t, srv)
		refused.Ends() // with the lanes without credentials
		pinned.Ends()
		for _, words := range []string{"GET k", "MULTI", "TRYLOCK l", "BLPOP l 0"} {
			srv.Dial(t).Script(words, "-NOAUTH")
		}
	}
}

// Redis may begin to demand logins between two questions. Nobody is served then on a connection that it has refused.
func TestADemandThatIsShort(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("SET k secret", "+OK")
	srv := proxytest.Start(t, redis)
	for range 5 {
		admin.Script("CONFIG SET requirepass pw", "+OK")
		early := srv.Dial(t)
		early.Send("MULTI")
		_, _ = early.Frame() // refused, or closed, or served on a connection from before
		admin.Quiet("CONFIG", "SET", "requirepass", "")
		proxytest.WaitFor(t, "service", func() bool {
			late := srv.Dial(t)
			late.Send("GET", "k")
			got, _ := late.Frame()
			return got == "$6\r\nsecret\r\n"
		})
	}
}

// A crowd that has not logged in costs Redis a question now and then, however many commands it sends.
func TestACrowdOfStrangersAsksLittle(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "pw")
	srv := proxytest.Start(t, redis)
	before := redis.Info(t, "stats", "total_connections_received:")
	var crowd sync.WaitGroup
	for range 50 {
		c := srv.Dial(t)
		crowd.Go(func() {
			c.Raw(strings.Repeat("GET k\r\n", 100) + "QUIT\r\n")
			for range 100 {
				if got, err := c.Frame(); got != "-NOAUTH Authentication required.\r\n" || err != nil {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
			c.Gets("+OK")
		})
	}
	member := srv.Dial(t)
	member.Script("AUTH pw", "+OK", "SET k v", "+OK")
	crowd.Wait()
	if n := redis.Info(t, "stats", "total_connections_received:") - before; n > 60 {
		t.Errorf("5,000 commands of strangers have taken %d connections", n)
	}
}

// A client that came while Redis demanded credentials has the limits of others when Redis is open.
func TestTheLimitsOfStrangersEndWithTheDemand(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	admin := proxytest.Dial(t, redis.Addr())
	admin.Script("CONFIG SET requirepass pw", "+OK")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Password = "pw" })
	awaitShut(t, srv)
	c := srv.Dial(t)
	c.Script("GET k", "-NOAUTH")
	admin.Quiet("CONFIG", "SET", "requirepass", "")
	proxytest.WaitFor(t, "the end of the demand", func() bool { return !srv.Shared().Upstream.NeedsAuth() })
	c.Script("SET k "+strings.Repeat("v", 20_000), "+OK", "MSET a 1 b 2 c 3 d 4 e 5 f 6", "+OK", "LOCK l", ":")
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
	c := srv.Dial(t)
	c.Script("GET k", "$6")
	admin.Script("CONFIG SET requirepass pw", "+OK")
	awaitShut(t, srv)
	c.Ends() // with the lanes without credentials
	srv.Dial(t).Script("GET k", "-NOAUTH")
}

// awaitShut waits until the proxy has noticed that Redis lets in no new client without credentials.
func awaitShut(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	proxytest.WaitFor(t, "the proxy to ask Redis", srv.Shared().Upstream.NeedsAuth)
}
