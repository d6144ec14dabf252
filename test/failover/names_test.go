package failover

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestAServerHasAnIPv6Address(t *testing.T) {
	t.Parallel()
	srv := redistest.StartAt(t, redistest.IPv6(t))
	proxy := proxytest.Start(t, srv)
	proxytest.Dial(t, proxy.Addr()).Script("SET x 1", "+OK")
}

// Sentinels may know servers by names, and tell them. They, too, are reached by their name.
func TestSentinelsTellNames(t *testing.T) {
	t.Parallel()
	overAFailover(t, redistest.Place{Host: "localhost"}, "sentinel resolve-hostnames yes", "sentinel announce-hostnames yes")
}

func TestSentinelsHaveIPv6Addresses(t *testing.T) {
	t.Parallel()
	overAFailover(t, redistest.IPv6(t))
}

// overAFailover fails over from a server to another one, all at a place.
func overAFailover(t *testing.T, at redistest.Place, options ...string) {
	t.Helper()
	primary := redistest.StartAt(t, at, "--replica-announce-ip", at.Host)
	replica := redistest.StartReplicaAt(t, at, primary, "--replica-announce-ip", at.Host)
	s := redistest.StartSentinelsAt(t, at, 3, primary, []*redistest.Server{replica}, options...)
	told, _ := s.All[0].Do(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name).([]any)
	if len(told) != 2 || told[0] != at.Host {
		t.Fatalf("the Sentinels tell %q, want %s", told, at.Host)
	}
	srv := proxytest.Start(t, primary, proxytest.Patient, func(o *proxy.Options) { o.Upstream.Addr = s.URL() })
	p := srv.Dial(t)
	proxytest.WaitFor(t, "a lock", func() bool { return strings.HasPrefix(p.Quiet("LOCK", "k", "SYNC", "1"), ":") })
	deaf, shown := srv.Dial(t), strings.Repeat("\n", 512<<10) // the end of its connection waits for it, and nothing else does
	deaf.Do("MONITOR")
	for range 24 {
		p.Do("SET", "x", shown)
	}
	for moves := range int64(2) {
		s.Failover()
		proxytest.WaitFor(t, "the new primary", func() bool { return srv.Stats().Moves == moves+1 })
	}
	p.Script("UNLOCK k", ":1", "SET x 1", "+OK")
}
