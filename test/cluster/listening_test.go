package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
func subscriptionsAreCounted(t *testing.T, alone *redistest.Server, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			sameAsAlone(t, alone, c, proxies, func(s *proxytest.Side) {
				a, b := s.Speaking("a", proto), s.Speaking("b", proto)
				frames := func(line string, n int) {
					a.Send(strings.Fields(line)...)
					a.Expect(n)
				}
				frames("UNSUBSCRIBE", 1)
				frames("SUNSUBSCRIBE x y", 2)
				frames("SUBSCRIBE", 1)
				frames("SUBSCRIBE a b a", 3)
				frames("PSUBSCRIBE p* __key*", 2)
				for _, ch := range []string{"s1", "s2", "s3", "s4", "s1"} { // on all servers
					frames("SSUBSCRIBE "+ch, 1)
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
				for _, ch := range []string{"s1", "s2", "s3", "s4"} {
					b.Do("SPUBLISH", ch, "m")
					a.Expect(1)
				}
				b.Each("PUBSUB NUMSUB a b c", "PUBSUB NUMPAT", "PUBSUB SHARDNUMSUB s1 s2 x")
				frames("UNSUBSCRIBE a x", 2)
				frames("SUNSUBSCRIBE s4 s4", 2)
				frames("SUNSUBSCRIBE s1", 1)
				frames("SUNSUBSCRIBE s2", 1)
				frames("SUNSUBSCRIBE s3", 1)
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
func aListenerUsesAllServers(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	for engine, srv := range proxies {
		p := srv.Dial(t)
		p.Each("HELLO 3", "SUBSCRIBE own"+engine)
		for _, key := range spreadKeys(t, c, "listens"+engine) {
			p.Script("SET "+key+" x", "+OK")
			p.Raw("MULTI\r\nINCR n" + key + "\r\nEXEC\r\n")
			p.Gets("+OK", "+QUEUED", "*1\r\n:1\r\n")
		}
		p.Raw("MULTI\r\nSUBSCRIBE x\r\nEXEC\r\n")
		p.Gets("+OK", "-ERR subscriptions are not possible", "-EXECABORT")
	}
}

// eventsOfAllServers subscribes to the events of keys, which each server tells to its own subscribers only.
func eventsOfAllServers(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	for engine, srv := range proxies {
		p, w := srv.Dial(t), srv.Dial(t)
		w.Quiet("CONFIG", "SET", "notify-keyspace-events", "KEA")
		p.Each("PSUBSCRIBE __keyevent@0__:se[t]", "SUBSCRIBE __keyspace@0__:b"+engine+" both"+engine)
		p.ExpectFrame("both" + engine)
		for _, key := range spreadKeys(t, c, "event"+engine) {
			w.Quiet("SET", key, "x")
			p.ExpectFrame("pmessage", key)
		}
		w.Each("DEL b"+engine, "RPUSH b"+engine+" x")
		p.ExpectFrame("message", "rpush")
		w.Quiet("PUBLISH", "both"+engine, "once")
		p.ExpectFrame("message", "once")
		all := srv.Dial(t)
		all.Quiet("PSUBSCRIBE", "*")
		w.Quiet("PUBLISH", "both"+engine, "1") // arrives at all servers
		w.Quiet("PUBLISH", "both"+engine, "2")
		for i := range 2 {
			all.ExpectFrame("pmessage", fmt.Sprint(i+1))
			p.ExpectFrame("message", fmt.Sprint(i+1))
		}
		w.Quiet("CONFIG", "SET", "notify-keyspace-events", "")
	}
}

// subscriptionsMove moves the slots of shard channels, and that of all PUBLISH, from server to server: the client gets the messages, and nothing else.
func subscriptionsMove(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	m := newMover(t, c)
	for engine, srv := range proxies {
		p, w := srv.Dial(t), srv.Dial(t)
		names := spreadKeys(t, c, "shard"+engine)
		var slots []int
		if m.owner[0] == 0 { // of all PUBLISH
			slots = append(slots, 0)
		}
		for i, name := range names {
			slots = append(slots, int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", name).(int64)))
			p.Each("SSUBSCRIBE "+name, fmt.Sprint("SUBSCRIBE "+engine, i))
		}
		// received sends messages until one arrives: those that are sent while the subscription moves may be lost.
		received := func(verb, name string) {
			t.Helper()
			for i, end := 0, time.Now().Add(proxytest.Patience); time.Now().Before(end); i++ {
				text := fmt.Sprint(name, i)
				w.Quiet(verb, name, text)
				got, ok := p.FrameWithin(20 * time.Millisecond)
				if !ok {
					continue
				}
				for ; !strings.Contains(got, "\r\n"+text+"\r\n"); got, ok = p.FrameWithin(proxytest.Patience) {
					if !ok || !strings.Contains(got, "message\r\n") {
						t.Fatalf("%s: got %q", name, got)
					}
				}
				return
			}
			t.Fatalf("%s: no message arrives", name)
		}
		for _, slot := range slots {
			m.move(slot, (m.owner[slot]+1)%c.Primaries)
		}
		for i, name := range names {
			received("SPUBLISH", name)
			received("PUBLISH", fmt.Sprint(engine, i))
		}
		c.AwaitReady()
	}
}
