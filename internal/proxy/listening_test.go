package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// expectFrame fails unless the next frame has all these parts.
func (c *peer) expectFrame(parts ...string) {
	c.t.Helper()
	got, err := c.frame()
	for _, part := range parts {
		if err != nil || !strings.Contains(got, "\r\n"+part+"\r\n") {
			c.t.Fatalf("got %q (%v), want %q", got, err, parts)
		}
	}
}

// frameWithin reads one whole frame, if one begins within a time.
func (c *peer) frameWithin(limit time.Duration) (string, bool) {
	if len(c.buf) == 0 {
		_ = c.nc.SetReadDeadline(time.Now().Add(limit))
		chunk := make([]byte, 4096)
		n, _ := c.nc.Read(chunk)
		c.buf = append(c.buf, chunk[:n]...)
	}
	if len(c.buf) == 0 {
		return "", false
	}
	got, err := c.frame()
	return got, err == nil
}

// subscriptionsAreCounted compares the replies with those of a server that stands alone.
func subscriptionsAreCounted(t *testing.T, alone *redistest.Server, c *redistest.Cluster, proxies map[string]*Server) {
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			sameAsAlone(t, alone, c, proxies, func(s *side) {
				a, b := s.speaking("a", proto), s.speaking("b", proto)
				frames := func(line string, n int) {
					a.send(strings.Fields(line)...)
					a.expect(n)
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
				b.do("PUBLISH", "a", "m")
				a.expect(1)
				b.do("PUBLISH", "pp", "m")
				a.expect(1)
				for _, ch := range []string{"s1", "s2", "s3", "s4"} {
					b.do("SPUBLISH", ch, "m")
					a.expect(1)
				}
				b.do("PUBSUB", "NUMSUB", "a", "b", "c")
				b.do("PUBSUB", "NUMPAT")
				b.do("PUBSUB", "SHARDNUMSUB", "s1", "s2", "x")
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
				b.quiet("PUBLISH", "a", "m") // Redis may still see the connection
				frames("GET k", 1)
			})
		})
	}
}

// aListenerUsesAllServers has a client in RESP3 go on with commands while it is subscribed.
func aListenerUsesAllServers(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		p := dialClient(t, address(srv))
		p.quiet("HELLO", "3")
		p.quiet("SUBSCRIBE", "own"+engine)
		for _, key := range spreadKeys(t, c, "listens"+engine) {
			if got := p.quiet("SET", key, "x"); got != "+OK\r\n" {
				t.Errorf("SET: %q", got)
			}
			p.raw("MULTI\r\nINCR n" + key + "\r\nEXEC\r\n")
			for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n"} {
				if got, err := p.frame(); got != want {
					t.Errorf("got %q (%v), want %q", got, err, want)
				}
			}
		}
		p.raw("MULTI\r\nSUBSCRIBE x\r\nEXEC\r\n")
		for _, want := range []string{"+OK", "-ERR subscriptions are not possible", "-EXECABORT"} {
			if got, err := p.frame(); !strings.HasPrefix(got, want) {
				t.Errorf("got %q (%v), want %q", got, err, want)
			}
		}
	}
}

// eventsOfAllServers subscribes to the events of keys, which each server tells to its own subscribers only.
func eventsOfAllServers(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		p, w := dialClient(t, address(srv)), dialClient(t, address(srv))
		w.quiet("CONFIG", "SET", "notify-keyspace-events", "KEA")
		p.quiet("PSUBSCRIBE", "__keyevent@0__:se[t]")
		p.quiet("SUBSCRIBE", "__keyspace@0__:b"+engine, "both"+engine)
		p.expectFrame("both" + engine)
		for _, key := range spreadKeys(t, c, "event"+engine) {
			w.quiet("SET", key, "x")
			p.expectFrame("pmessage", key)
		}
		w.quiet("DEL", "b"+engine)
		w.quiet("RPUSH", "b"+engine, "x")
		p.expectFrame("message", "rpush")
		w.quiet("PUBLISH", "both"+engine, "once")
		p.expectFrame("message", "once")
		all := dialClient(t, address(srv))
		all.quiet("PSUBSCRIBE", "*")
		w.quiet("PUBLISH", "both"+engine, "1") // arrives at all servers
		w.quiet("PUBLISH", "both"+engine, "2")
		for i := range 2 {
			all.expectFrame("pmessage", fmt.Sprint(i+1))
			p.expectFrame("message", fmt.Sprint(i+1))
		}
		w.quiet("CONFIG", "SET", "notify-keyspace-events", "")
	}
}

// subscriptionsMove moves the slots of shard channels, and that of all PUBLISH, from server to server: the client gets the messages, and nothing else.
func subscriptionsMove(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	m := newMover(t, c)
	for engine, srv := range proxies {
		p, w := dialClient(t, address(srv)), dialClient(t, address(srv))
		names := spreadKeys(t, c, "shard"+engine)
		var slots []int
		if m.owner[0] == 0 { // of all PUBLISH
			slots = append(slots, 0)
		}
		for i, name := range names {
			slots = append(slots, int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", name).(int64)))
			p.quiet("SSUBSCRIBE", name)
			p.quiet("SUBSCRIBE", fmt.Sprint(engine, i))
		}
		// received sends messages until one arrives: those that are sent while the subscription moves may be lost.
		received := func(verb, name string) {
			t.Helper()
			for i, end := 0, time.Now().Add(patience); time.Now().Before(end); i++ {
				text := fmt.Sprint(name, i)
				w.quiet(verb, name, text)
				got, ok := p.frameWithin(20 * time.Millisecond)
				if !ok {
					continue
				}
				for ; !strings.Contains(got, "\r\n"+text+"\r\n"); got, ok = p.frameWithin(patience) {
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
