package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// spreadKeys returns a key of each primary of a cluster that begins with a prefix.
func spreadKeys(t testing.TB, c *redistest.Cluster, prefix string) []string {
	t.Helper()
	keys := make([]string, c.Primaries)
	for i, left := 0, c.Primaries; left > 0; i++ {
		key := fmt.Sprint(prefix, i)
		slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
		if at := slot * c.Primaries / redistest.Slots; keys[at] == "" {
			keys[at] = key
			left--
		}
	}
	return keys
}

// subscriptionsAreCounted compares the replies with those of a server that stands alone.
func subscriptionsAreCounted(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy) {
	shard := "{" + proxytest.KeyOf(t, c, c.Nodes[0]) + "}" // where all channels are
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			sameAsAlone(t, alone, c, srv, func(s *proxytest.Side) {
				a, b := s.Speaking("a", proto), s.Speaking("b", proto)
				frames := func(line string, n int) {
					a.Send(strings.Fields(line)...)
					a.Expect(n)
				}
				frames("UNSUBSCRIBE", 1)
				frames("SUNSUBSCRIBE "+shard+"x "+shard+"y", 2)
				frames("SUBSCRIBE", 1)
				frames("SUBSCRIBE a b a", 3)
				frames("PSUBSCRIBE p* __key*", 2)
				for _, ch := range []string{"1", "2", "3", "4", "1"} {
					frames("SSUBSCRIBE "+shard+ch, 1)
				}
				if proto == 2 {
					for _, line := range []string{
						"GET k", "SET k v", "NOSUCH", "CLUSTER INFO", "MULTI", "WATCH k", "HELLO x", "DISCARD", "UNWATCH", "CONFIG GET a", "CLIENT REPLY OFF",
						"GET", "GET k k", "CLIENT", "CLIENT NOSUCH", "CLIENT REPLY", "CONFIG GET", "OBJECT HELP x", "MULTI x", "EXEC x", "AUTH", "SELECT", "PUBLISH a",
					} {
						frames(line, 1)
					}
				}
				frames("PING", 1)
				frames("PING x", 1)
				frames("PING x y", 1)
				b.Do("PUBLISH", "a", "m")
				a.Expect(1)
				b.Do("PUBLISH", "pp", "m")
				a.Expect(1)
				for _, ch := range []string{"1", "2", "3", "4"} {
					b.Do("SPUBLISH", shard+ch, "m")
					a.Expect(1)
				}
				b.Each("PUBSUB NUMSUB a b c", "PUBSUB NUMPAT", "PUBSUB CHANNELS a", "PUBSUB SHARDNUMSUB "+shard+"1 x")
				frames("UNSUBSCRIBE a x", 2)
				frames("SUNSUBSCRIBE "+shard+"4 "+shard+"4", 2)
				for _, ch := range []string{"1", "2", "3"} {
					frames("SUNSUBSCRIBE "+shard+ch, 1)
				}
				frames("PUNSUBSCRIBE p*", 1)
				frames("PUNSUBSCRIBE", 1)
				frames("UNSUBSCRIBE", 1)
				frames("GET k", 1)
				frames("SUBSCRIBE a", 1)
				frames("RESET", 1)
				b.Quiet("PUBLISH", "a", "m") // Redis may still see the connection
				frames("GET k", 1)
			})
		})
	}
}

// aListenerUsesAllServers has a client in RESP3 go on with commands while it is subscribed.
func aListenerUsesAllServers(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	p := srv.Dial(t)
	p.Each("HELLO 3", "SUBSCRIBE own")
	keys := spreadKeys(t, c, "listens")
	for _, key := range keys {
		p.Script("SET "+key+" x", "+OK", "GET "+key, "$1\r\nx", "DBSIZE", ":", "CLIENT ID", ":")
		p.Send("PUBLISH", "own", "m")
		first, _ := p.Frame() // the order of the two is not defined
		second, err := p.Frame()
		if all := first + second; err != nil || !strings.Contains(all, ":1\r\n") || !strings.Contains(all, "own") {
			t.Errorf("PUBLISH: %q (%v)", all, err)
		}
		p.Script("MULTI", "+OK", "INCR n"+key, "+QUEUED", "SUBSCRIBE x", "-ERR subscriptions are not possible", "EXEC", "-EXECABORT")
		p.Script("MULTI", "+OK", "INCR n"+key, "+QUEUED", "EXEC", "*1\r\n:1\r\n", "EXEC", "-ERR EXEC without MULTI", "UNWATCH", "+OK")
		p.Raw("MULTI\r\n" + strings.Repeat("INCR n"+key+"\r\n", 300) + "EXEC\r\n")
		p.Gets(append(append([]string{"+OK"}, slices.Repeat([]string{"+QUEUED"}, 300)...), "-ERR not possible")...)
		p.Script("WATCH "+key, "-ERR not possible", "BLPOP "+key+" 0", "-ERR not possible")
	}
	p.Script("MGET "+strings.Join(keys, " "), "*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n")
	p.Script("SSUBSCRIBE "+keys[1], "-CROSSSLOT ", "SUNSUBSCRIBE "+keys[1], "-CROSSSLOT ", "SSUBSCRIBE "+keys[0], ">3")
	p.Raw("UNSUBSCRIBE\r\nSUNSUBSCRIBE\r\nBLPOP none" + keys[2] + " 0.01\r\nSUBSCRIBE x\r\n")
	p.Gets(">3", ">3", "_", ">3")
}

// aSubscriptionEndsWithItsSlot moves the slots of shard channels, and that of all PUBLISH, from server to server.
func aSubscriptionEndsWithItsSlot(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	m := newMover(t, c)
	tag := "{" + proxytest.KeyOf(t, c, c.Nodes[1]) + "}shard"
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", tag).(int64))
	proxytest.WaitFor(t, "the view", func() bool { return srv.Shared().Upstream.View().Owner(0).ID == c.ID(c.Nodes[0]) })
	p, channels, w := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	other := "{other" + proxytest.KeyOf(t, c, c.Nodes[1]) + "}"
	for i := 0; m.owner[hashslot.Of([]byte(other))] != 1 || hashslot.Of([]byte(other)) == slot; i++ {
		other = fmt.Sprint("other", i)
	}
	p.Script("SSUBSCRIBE "+other, "*3", "SSUBSCRIBE "+tag, "*3", "SUBSCRIBE x", "-CROSSSLOT ")
	channels.Script("SUBSCRIBE x", "*3")
	w.Script("SPUBLISH "+tag+" m", ":1", "PUBLISH x m", ":1")
	p.ExpectFrame("smessage", tag)
	channels.ExpectFrame("message", "x")
	m.move(slot, 2)
	p.ExpectFrame("sunsubscribe", tag, ":1")
	p.Script("SSUBSCRIBE "+tag, "-CROSSSLOT ", "SUNSUBSCRIBE", "*3", "SSUBSCRIBE "+tag, "*3\r\n$10\r\nssubscribe\r\n")
	w.Script("SPUBLISH "+tag+" m", ":1")
	p.ExpectFrame("smessage", tag)
	m.move(slot, 1)
	p.ExpectFrame("sunsubscribe", tag, ":0")
	p.Script("GET "+tag, "$-1")
	for _, to := range []int{1, 0} {
		m.move(0, to)
		channels.Ends()
		channels = srv.Dial(t)
		channels.Script("SUBSCRIBE x", "*3")
		w.Script("PUBLISH x m", ":1")
		channels.ExpectFrame("message", "x")
	}
	c.AwaitReady()
}

// oneServerDemandsALogin: what is not served everywhere is served nowhere.
func oneServerDemandsALogin(t *testing.T, c *redistest.Cluster) {
	locked := proxytest.Dial(t, c.Nodes[1].Addr())
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	p, listener := srv.Dial(t), srv.Dial(t)
	p.Script("SET "+key+" x", "+OK", "LOCK {"+key+"}held", ":")
	listener.Script("SUBSCRIBE c", "*3")
	locked.Script("CONFIG SET requirepass pw", "+OK")
	p.Ends()
	listener.Ends()
	// An answer from before may come behind the demand, for which the server is asked again.
	proxytest.WaitFor(t, "a refusal", func() bool { return strings.HasPrefix(srv.Anew(t, "GET "+key), "-NOAUTH") })
	late := srv.Dial(t)
	late.Script("GET "+key, "-NOAUTH", "LOCK l", "-NOAUTH", "SUBSCRIBE c", "-NOAUTH")
	locked.Quiet("CONFIG", "SET", "requirepass", "")
	late.Script("GET "+key, "$1", "LOCK {"+key+"}late", ":", "DEL "+key, ":1")
}
