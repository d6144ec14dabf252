package upstream

import (
	"cmp"
	"context"
	"flag"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// finish fills in the options that a test leaves open.
func finish(o *Options) {
	o.DialTimeout = cmp.Or(o.DialTimeout, 3*time.Second)
	o.FailoverWait = cmp.Or(o.FailoverWait, time.Second)
	o.MaxLanes = cmp.Or(o.MaxLanes, 256)
	p := &o.Pins
	p.Max, p.Wait = cmp.Or(p.Max, 1000), cmp.Or(p.Wait, time.Second)
	p.MaxLogins, p.LoginWait = cmp.Or(p.MaxLogins, 16), cmp.Or(p.LoginWait, 10*time.Second)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// start runs an Upstream in front of a real Redis until the test ends.
func start(t *testing.T, opts Options) *Upstream {
	t.Helper()
	finish(&opts)
	u, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- u.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return u
}

// A Redis that has too many clients at the start is asked for its commands until it answers.
func TestARefusalThatPassesIsNoMissingTable(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	limit := func(n int) {
		if err := client.ConfigSet(t.Context(), "maxclients", strconv.Itoa(n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	core, entries := observer.New(zap.InfoLevel)
	start(t, Options{Addr: srv.Addr(), Logger: zap.New(core)})
	redistest.Eventually(t, 10*time.Second, "a refused attempt", func() bool { return entries.Len() > 0 })
	limit(1000)
	redistest.Eventually(t, 10*time.Second, "the table of this Redis", func() bool { return entries.FilterMessage("connected to upstream").Len() > 0 })
}

// A replica serves reads, and no lock.
func TestAReplicaIsNamed(t *testing.T) {
	primary := redistest.Start(t)
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for srv, want := range map[*redistest.Server]int{primary: 0, redistest.Start(t, "--replicaof", host+" "+port): 1} {
		core, entries := observer.New(zap.InfoLevel)
		start(t, Options{Addr: srv.Addr(), Logger: zap.New(core)})
		redistest.Eventually(t, 10*time.Second, "the table of this Redis", func() bool {
			return entries.FilterMessage("connected to upstream").Len() > 0 &&
				(want == 0 || entries.FilterMessageSnippet("upstream is a replica").Len() == want)
		})
		if got := entries.FilterMessageSnippet("upstream is a replica").Len(); got != want {
			t.Errorf("%d warnings, want %d", got, want)
		}
	}
}

var update = flag.Bool("update", false, "rewrite snapshot.resp from the redis-server at hand")

// The snapshot is the answer of a real Redis; it is compared with the one at hand when that is of the same version.
func TestSnapshotIsRedisAnswer(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr()})
	nc, err := u.dialer.Dial(t.Context(), dial.Target{At: topology.Any, ID: Identity{Proto: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := u.dialer.Ask(nc, "COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("../commands/snapshot.resp", b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := commands.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got.All() {
		if s := commands.BuiltIn().Lookup(c.Name); s != nil && s.Flags != c.Flags {
			t.Errorf("%s: flags %b in the snapshot, %b in Redis", c.Name, s.Flags, c.Flags)
		}
	}
	for name, want := range map[string]commands.Flags{"blpop": commands.Blocking | commands.Changes, "get": 0, "wait": 0, "publish": commands.Changes, "eval": commands.Changes, "function": commands.Changes} {
		if got := got.Lookup(name).Flags; got != want {
			t.Errorf("%s: flags %b, want %b", name, got, want)
		}
	}
	if got.Lookup("client").Subcommands["setname"] != 3 {
		t.Error("CLIENT SETNAME is not listed")
	}
}
