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
	for _, engine := range proxytest.Engines() {
		proxy := proxytest.Start(t, srv, func(o *proxy.Options) { o.Engine = engine })
		if got := proxytest.Dial(t, proxy.Addr()).Quiet("SET", "x", "1"); got != "+OK\r\n" {
			t.Errorf("SET: %q", got)
		}
	}
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
	srv := proxytest.Start(t, primary, proxytest.Patient, func(o *proxy.Options) { o.Upstream.Addr = "sentinel://" + s.Addrs() + "/" + s.Name })
	p := proxytest.Dial(t, srv.Addr())
	redistest.Eventually(t, proxytest.Patience, "a lock", func() bool { return strings.HasPrefix(p.Quiet("LOCK", "k", "SYNC", "1"), ":") })
	s.Failover()
	redistest.Eventually(t, proxytest.Patience, "the new primary", func() bool { return srv.Stats().Moves == 1 })
	if got := p.Quiet("UNLOCK", "k"); got != ":1\r\n" {
		t.Errorf("UNLOCK after the failover: %q", got)
	}
	if got := p.Quiet("SET", "x", "1"); got != "+OK\r\n" {
		t.Errorf("SET after the failover: %q", got)
	}
}
