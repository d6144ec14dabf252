package clients

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// slowWaits has the proxy log waits that take longer; 0: none.
func slowWaits(srv *proxytest.Proxy, than time.Duration) {
	srv.Alter(func(o *proxy.Options) { o.Locks.Slow.Wait = than })
}

// slowEntries are the entries of LOCKSLOW GET as maps.
func slowEntries(t *testing.T, c *proxytest.Client, n int) (all []map[string]string) {
	t.Helper()
	list, _, err := resp.Decode([]byte(c.Do("LOCKSLOW", "GET", strconv.Itoa(n))))
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
func slowLock(srv *proxytest.Proxy, holder, waiter *proxytest.Client, key string, than time.Duration) {
	holder.Script("LOCK "+key+" OWNER boss", ":")
	slowWaits(srv, than)
	waiter.Script("TRYLOCK "+key+" WAIT 500 OWNER clerk", null(waiter))
	slowWaits(srv, 0)
	holder.Script("UNLOCK "+key+" OWNER boss", ":1")
}

// null is the null reply in the client's protocol version.
func null(c *proxytest.Client) string {
	if strings.HasPrefix(c.Do("LOCKINFO", "nosuchlock"), "_") {
		return "_"
	}
	return "$-1"
}

func TestLockSlowShowsWhoWaitedAndHeldBehindWhom(t *testing.T) {
	t.Parallel()
	proxytest.PerEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		redis.Do(t, "ACL", "SETUSER", "other", "on", ">pw", "~*", "&*", "+@all")
		srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Engine = engine })
		a, b, c := srv.Dial(t), srv.Dial(t), srv.Dial(t)
		b.Script("HELLO 3 SETNAME waiter", "%")
		a.Script("CLIENT SETNAME holder", "+OK")
		slowLock(srv, a, b, "before", 0)
		b.Script("LOCKSLOW LEN", ":0", "LOCKSLOW GET", "*0")
		proxytest.SlowFrom(srv)
		begin := time.Now().Unix()
		slowLock(srv, a, b, "k", slowWait)
		b.Script("LOCKSLOW LEN", ":2", "LOCKSLOW GET 1", "*1\r\n%11", "LOCKSLOW GET -1", "*2\r\n%11", "LOCKSLOW GET 0", "*0")
		a.Script("LOCKSLOW GET", "*2\r\n*22", "lockslow get 2", "*2\r\n*22")
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
		expect(hold, "id", "1", "kind", "hold", "key", "k", "owner", "boss", "outcome", "released", "reason", "", "name", "holder", "client", a.Conn.LocalAddr().String())
		expect(wait, "id", "0", "kind", "wait", "key", "k", "owner", "clerk", "outcome", "timed-out", "name", "waiter", "client", b.Conn.LocalAddr().String(),
			"behind", "boss", "behind-client", a.Conn.LocalAddr().String(), "behind-name", "holder")

		// Another user, and another database, see their own.
		c.Script("AUTH other pw", "+OK", "LOCKSLOW LEN", ":0", "LOCKSLOW RESET", "+OK")
		a.Script("SELECT 1", "+OK", "LOCKSLOW LEN", ":0", "SELECT 0", "+OK", "LOCKSLOW LEN", ":2")
		slowLock(srv, a, c, "k", slowWait)
		expect(slowEntries(t, c, 10)[0], "kind", "wait", "behind", "elsewhere", "behind-client", "", "behind-name", "")

		// A lost hold.
		a.Granted("LOCK", "lost", "PX", "100")
		proxytest.WaitFor(t, "the loss", func() bool { return slowEntries(t, b, 1)[0]["key"] == "lost" })
		expect(slowEntries(t, b, 1)[0], "outcome", "lost", "reason", "expired")
		b.Script("LOCKSLOW LEN", ":4")

		// As the other lock commands it is refused in a transaction.
		b.Script("MULTI", "+OK", "LOCKSLOW LEN", "-ERR", "EXEC", "-EXECABORT")
		b.Script("LOCKSLOW", "-ERR wrong number of arguments for 'lockslow' command", "LOCKSLOW NO", "-ERR unknown subcommand 'NO'. Try LOCKSLOW HELP.",
			"LOCKSLOW HELP", "*9\r\n+LOCKSLOW <subcommand>", "LOCKSLOW RESET", "+OK", "LOCKSLOW LEN", ":0", "PING", "+PONG")
	})
}
