package failover

import (
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// epoch7 has Sentinels begin as if there had been seven failovers.
var epoch7 = []string{"config-epoch 7", "sentinel current-epoch 7"}

// overSentinels starts a proxy in front of Sentinels, with a client.
func overSentinels(t *testing.T, redis *redistest.Server, url string) (*proxytest.Client, *proxytest.Proxy) {
	t.Helper()
	srv := proxytest.Start(t, redis, proxytest.Patient, func(o *proxy.Options) { o.Upstream.Addr = url })
	c := srv.Dial(t)
	c.Script("SET x first", "+OK")
	return c, srv
}

// arrive returns when what a new client writes is at a server.
func arrive(t *testing.T, srv *proxytest.Proxy, at *redistest.Server) {
	t.Helper()
	redistest.Eventually(t, proxytest.Follows, "a proxy to follow the Sentinels", func() bool {
		srv.Anew(t, "SET who "+srv.Addr()) // may be closed while no primary is known
		return at.Do(t, "GET", "who") == srv.Addr()
	})
	srv.Dial(t).Script("LOCK "+at.Addr(), ":")
}

// A primary that Sentinels are told to monitor has epoch 0.
func TestAPrimaryThatSentinelsAreToldToMonitorIsFollowed(t *testing.T) {
	t.Parallel()
	primary, other := redistest.Start(t), redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica}, epoch7...)
	_, srv := overSentinels(t, primary, s.URL())
	host, port, _ := net.SplitHostPort(other.Addr())
	for i, one := range s.All {
		one.Do(t, "SENTINEL", "REMOVE", s.Name)
		one.Do(t, "SENTINEL", "MONITOR", s.Name, host, port, 2)
		if i == 0 && srv.Stats().Moves > 0 {
			t.Error("one Sentinel is followed against two")
		}
	}
	arrive(t, srv, other)
}

func TestSentinelsThatWereDeployedAnewAreFollowed(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary), redistest.StartReplica(t, primary)}
	s := redistest.StartSentinels(t, 3, primary, replicas, epoch7...)
	_, srv := overSentinels(t, primary, s.URL())

	replicas[0].Do(t, "REPLICAOF", "NO", "ONE")
	host, port, _ := net.SplitHostPort(replicas[0].Addr())
	replicas[1].Do(t, "REPLICAOF", host, port)
	primary.Kill()
	replicas[0].AwaitReplicas(t, 1)
	s.Anew(replicas[0], replicas[1:])
	arrive(t, srv, replicas[0])

	replicas[0].Pause() // the next failover is an ordinary one
	s.AwaitOther(replicas[0])
	arrive(t, srv, replicas[1])
}

// A Sentinel of another system has an address of the configuration. Its epoch is greater by far.
func TestAForeignSentinelIsNotFollowed(t *testing.T) {
	t.Parallel()
	primary, stranger := redistest.Start(t), redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
	foreign := redistest.StartSentinels(t, 1, stranger, nil, "config-epoch 1000", "sentinel current-epoch 1000")
	client, srv := overSentinels(t, primary, "sentinel://"+s.All[0].Addr()+","+foreign.Addrs()+","+s.All[1].Addr()+"/"+s.Name)
	own := 0
	asked := func() int {
		own++ // each look counts
		return foreign.All[0].Info(t, "stats", "total_commands_processed:") - own
	}
	before := asked()
	redistest.Eventually(t, proxytest.Follows, "the foreign Sentinel to be heard for some seconds", func() bool { return asked() > before+5*8 })
	if n := srv.Stats().Moves; n != 0 {
		t.Errorf("%d moves by the word of a foreign Sentinel", n)
	}
	client.Script("GET x", "$5\r\nfirst\r\n")
	s.Failover()
	arrive(t, srv, replica)
	if n := stranger.Do(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%d keys are at a server of another system", n)
	}
}
