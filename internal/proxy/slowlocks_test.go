package proxy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// slowFrom has the proxy log slow holds from now on.
func slowFrom(srv *Server, most int) {
	c := *srv.live.Load()
	c.Locks.Slow = SlowLog{Hold: time.Millisecond, Len: most}
	srv.Change(c)
}

// slowWaits has the proxy log waits that take longer; 0: none.
func slowWaits(srv *Server, than time.Duration) {
	c := *srv.live.Load()
	c.Locks.Slow.Wait = than
	srv.Change(c)
}

// slowEntries are the entries of LOCKSLOW GET as maps.
func slowEntries(t *testing.T, c *peer, n int) (all []map[string]string) {
	t.Helper()
	list, _, err := resp.Decode([]byte(c.do("LOCKSLOW", "GET", strconv.Itoa(n))))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Elems {
		entry := map[string]string{}
		for i := 0; i+1 < len(e.Elems); i += 2 {
			entry[string(e.Elems[i].Str)] = string(e.Elems[i+1].Str)
			if v := e.Elems[i+1]; v.Str == nil {
				entry[string(e.Elems[i].Str)] = strconv.FormatInt(v.Int, 10)
			}
		}
		all = append(all, entry)
	}
	return all
}

// slowWait is less than the wait in slowLock.
const slowWait = 400 * time.Millisecond

// slowLock has one client hold a lock while another waits in vain: a slow wait, and a slow hold. Waits that take longer than a time are logged, except that
// of the holder, which may be as long on a busy machine; 0: none.
func slowLock(srv *Server, holder, waiter *peer, key string, than time.Duration) {
	holder.script("LOCK "+key+" OWNER boss", ":")
	slowWaits(srv, than)
	waiter.script("TRYLOCK "+key+" WAIT 500 OWNER clerk", null(waiter))
	slowWaits(srv, 0)
	holder.script("UNLOCK "+key+" OWNER boss", ":1")
}

// null is the null reply in the client's protocol version.
func null(c *peer) string {
	if strings.HasPrefix(c.do("LOCKINFO", "nosuchlock"), "_") {
		return "_"
	}
	return "$-1"
}

func TestLockSlowShowsWhoWaitedAndHeldBehindWhom(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		redis.Do(t, "ACL", "SETUSER", "other", "on", ">pw", "~*", "&*", "+@all")
		srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
		a, b, c := dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))
		b.script("HELLO 3 SETNAME waiter", "%")
		a.script("CLIENT SETNAME holder", "+OK")
		slowLock(srv, a, b, "before", 0)
		b.script("LOCKSLOW LEN", ":0", "LOCKSLOW GET", "*0")
		slowFrom(srv, 3)
		begin := time.Now().Unix()
		slowLock(srv, a, b, "k", slowWait)
		b.script("LOCKSLOW LEN", ":2", "LOCKSLOW GET 1", "*1\r\n%10", "LOCKSLOW GET -1", "*2\r\n%10", "LOCKSLOW GET 0", "*0")
		a.script("LOCKSLOW GET", "*2\r\n*20", "lockslow get 2", "*2\r\n*20")
		all := slowEntries(t, b, 10)
		hold, wait := all[0], all[1]
		for _, e := range all {
			if at, _ := strconv.ParseInt(e["time"], 10, 64); at < begin || at > time.Now().Unix() {
				t.Errorf("the time is %v", e["time"])
			}
			if took, _ := strconv.Atoi(e["duration-us"]); took < 400_000 || took > 60_000_000 {
				t.Errorf("it took %v µs", e["duration-us"])
			}
		}
		expect := func(e map[string]string, pairs ...string) {
			t.Helper()
			for i := 0; i < len(pairs); i += 2 {
				if e[pairs[i]] != pairs[i+1] {
					t.Errorf("%s is %q, want %q, in %v", pairs[i], e[pairs[i]], pairs[i+1], e)
				}
			}
		}
		expect(hold, "id", "1", "kind", "hold", "key", "k", "owner", "boss", "outcome", "released", "reason", "", "name", "holder", "client", a.nc.LocalAddr().String())
		expect(wait, "id", "0", "kind", "wait", "key", "k", "owner", "clerk", "outcome", "timed-out", "name", "waiter", "client", b.nc.LocalAddr().String(),
			"behind", "boss", "behind-client", a.nc.LocalAddr().String(), "behind-name", "holder")

		// Another user, and another database, see their own.
		c.script("AUTH other pw", "+OK", "LOCKSLOW LEN", ":0", "LOCKSLOW RESET", "+OK")
		a.script("SELECT 1", "+OK", "LOCKSLOW LEN", ":0", "SELECT 0", "+OK", "LOCKSLOW LEN", ":2")
		slowLock(srv, a, c, "k", slowWait)
		expect(slowEntries(t, c, 10)[0], "kind", "wait", "behind", "elsewhere", "behind-client", "", "behind-name", "")

		// A lost hold; the log is bounded.
		a.granted("LOCK", "lost", "PX", "100")
		redistest.Eventually(t, patience, "the loss", func() bool { return slowEntries(t, b, 1)[0]["key"] == "lost" })
		expect(slowEntries(t, b, 1)[0], "outcome", "lost", "reason", "expired")
		b.script("LOCKSLOW LEN", ":3")

		// As the other lock commands it is refused in a transaction.
		b.script("MULTI", "+OK", "LOCKSLOW LEN", "-ERR", "EXEC", "-EXECABORT")
		b.script("LOCKSLOW", "-ERR wrong number of arguments for 'lockslow' command", "LOCKSLOW NO", "-ERR unknown subcommand 'NO'. Try LOCKSLOW HELP.",
			"LOCKSLOW HELP", "*9\r\n+LOCKSLOW <subcommand>", "LOCKSLOW RESET", "+OK", "LOCKSLOW LEN", ":0", "PING", "+PONG")
	})
}

// slowLocksOverACluster has slow locks on all servers of a cluster.
func slowLocksOverACluster(t *testing.T, proxies map[string]*Server) {
	for _, srv := range proxies {
		slowFrom(srv, 100)
		a, b := dialClient(t, address(srv)), dialClient(t, address(srv))
		for _, key := range []string{"va", "vb", "vc"} {
			slowLock(srv, a, b, key, slowWait)
		}
		b.script("LOCKSLOW LEN", ":6", "LOCKSLOW GET 100", "*6")
		if wait := slowEntries(t, b, 100)[1]; wait["key"] != "vc" || wait["behind"] != "boss" {
			t.Errorf("%v", wait)
		}
	}
}
