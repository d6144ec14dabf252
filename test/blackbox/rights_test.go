package blackbox

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// documentedRights are the commands in the code blocks of docs/OPERATIONS.md that give rights, in their order, each as words.
func documentedRights(t *testing.T) [][]any {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]any
	for _, block := range regexp.MustCompile("(?s)```sh\nredis-cli [^\n]*?(ACL SETUSER .*?)```").FindAllSubmatch(text, -1) {
		var words []any
		for word := range strings.FieldsSeq(strings.ReplaceAll(string(block[1]), "\\\n", "")) {
			words = append(words, strings.Trim(word, "'")) // of the shell
		}
		all = append(all, words)
	}
	if len(all) != 4 {
		t.Fatalf("docs/OPERATIONS.md has %d blocks of rights, want those of the proxy, in a cluster, at Sentinels, and of a client", len(all))
	}
	return all
}

// wantNoDenial fails if a server has denied anything to the proxy's own user. What it has denied to others is the test's own.
func wantNoDenial(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, server := range servers {
		log, _ := server.Do(t, "ACL", "LOG").([]any)
		for _, entry := range log {
			if text := fmt.Sprint(entry); strings.Contains(text, "username lockproxy ") {
				t.Errorf("%s has denied: %s", server.Addr(), text)
			}
		}
	}
}

// useLocks sends every lock command, as a holder and as a waiter, and some commands of data, as the documented user app.
func useLocks(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	a, b := srv.Dial(t), srv.Dial(t)
	a.Script("PING", "-NOAUTH")
	for _, c := range []*proxytest.Client{a, b} {
		c.Script("HELLO 3 AUTH app secret", "%7")
	}
	a.Script("SET app:data 1", "+OK", "GET other", "-NOPERM", "LOCK app:k", ":")
	b.Send("FAIRLOCK", "app:k")
	proxytest.WaitFor(t, "a waiter", func() bool {
		return strings.Contains(a.Quiet("LOCKINFO", "app:k"), "fair-waiters\r\n:1")
	})
	a.Script("EXTENDLOCK app:k PX 60000", ":1", "UNLOCK app:k", ":1")
	b.Gets(":")
	b.Script("LOCKLIST", "*1")
	a.Script("FORCEUNLOCK app:k", ":1", "LOCK other", "-NOPERM")
	b.ExpectFrame("lock-lost")
}

func TestDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	rights := documentedRights(t)
	own, inCluster, atSentinels, client := rights[0], rights[1], rights[2], rights[3]
	start := func(t *testing.T, redis *redistest.Server, addr string, sentinel upstream.Sentinel) []*proxytest.Proxy {
		connect := upstream.Options{Addr: addr, User: "lockproxy", Password: "secret", Sentinel: sentinel}
		if err := proxytest.TryOut(t, connect, proxytest.Patience); err != nil {
			t.Errorf("--check --connect: %v", err)
		}
		var proxies []*proxytest.Proxy
		proxies = append(proxies, proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream = connect }))
		return proxies
	}

	t.Run("one server", func(t *testing.T) {
		redis := redistest.Start(t, "--requirepass", "admin")
		redis.Do(t, own...)
		redis.Do(t, client...)
		for _, srv := range start(t, redis, redis.Addr(), upstream.Sentinel{}) {
			useLocks(t, srv)
		}
		wantNoDenial(t, redis)
	})

	t.Run("sentinels", func(t *testing.T) {
		primary := redistest.Start(t, "--requirepass", "admin", "--masterauth", "admin")
		replica := redistest.StartReplica(t, primary)
		s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
		for _, one := range s.All {
			one.Do(t, atSentinels...)
		}
		for _, server := range []*redistest.Server{primary, replica} {
			server.Do(t, own...)
			server.Do(t, client...)
		}
		proxies := start(t, primary, s.URL(), upstream.Sentinel{User: "lockproxy", Password: "secret"})
		for _, srv := range proxies {
			useLocks(t, srv)
		}
		s.BeginFailover()
		for _, srv := range proxies {
			redistest.Eventually(t, 20*time.Second, "the proxy to follow the failover", func() bool {
				c := srv.Dial(t)
				c.Send("AUTH", "app", "secret")
				c.Send("SET", "app:data", "2")
				login, _ := c.Frame() // the connection of a command that crosses the failover closes
				write, _ := c.Frame()
				return login == "+OK\r\n" && write == "+OK\r\n" && s.Primary() == replica
			})
			useLocks(t, srv)
		}
		wantNoDenial(t, append(s.All, primary, replica)...)
	})

	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 0)
		for _, node := range c.Nodes {
			node.Do(t, own...)
			node.Do(t, inCluster...)
			node.Do(t, client...)
		}
		for _, srv := range start(t, c.Nodes[0], "cluster://"+c.Addrs(), upstream.Sentinel{}) {
			p := srv.Dial(t)
			p.Script("AUTH app secret", "+OK", "SET app:1 x", "+OK", "SET app:2 x", "+OK", "SET app:3 x", "+OK", "DEL app:1 app:2 app:3", ":3")
		}
		wantNoDenial(t, c.Nodes...)
	})
}
