package upstream

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// listen listens until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A connection leads to the server that is asked for, wherever the view has it at that moment.
func TestConnectionsLeadToTheServer(t *testing.T) {
	first, second := listen(t), listen(t)
	a, err := topology.ParseAddress("cluster://" + first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.NewCluster(a, topology.AddressMap{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	f := &Fleet{Cluster: c, Dialer: dial.New(dial.Options{Resolver: c, Timeout: 10 * time.Second, KeepAlive: time.Minute, UserTimeout: -1, Spawn: wg.Go, Stop: stop})}
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	if _, err := f.Connect(t.Context(), "a"); err == nil {
		t.Error("a server that nobody knows can be reached")
	}
	for _, l := range []net.Listener{first, second} { // the server moves
		c.Show(clustertest.View(t, clustertest.Share{ID: "a", Address: l.Addr().String(), From: 0, To: 16383}))
		if got := f.View().Primary("a"); got == nil || got.Address != l.Addr().String() {
			t.Errorf("the view has %v", got)
		}
		nc, err := f.Connect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := nc.RemoteAddr().String(); got != l.Addr().String() {
			t.Errorf("the connection leads to %s, want %s", got, l.Addr())
		}
		f.Dialer.HangUp(nc)
	}
}

// Only servers that know SPUBLISH have shard channels.
func TestShardChannels(t *testing.T) {
	table := commands.BuiltIn() // of Redis 7.0
	f := &Fleet{Commands: func() *commands.Table { return table }}
	if !f.Sharded() {
		t.Error("Redis 7.0 has no shard channels")
	}
	var err error
	if table, err = commands.Parse([]byte("*1\r\n*6\r\n$7\r\npublish\r\n:3\r\n*0\r\n:0\r\n:0\r\n:0\r\n")); err != nil {
		t.Fatal(err)
	}
	if f.Sharded() {
		t.Error("a server without SPUBLISH has shard channels")
	}
}
