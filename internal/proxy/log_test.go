package proxy

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A fixed lease that runs out has done what the client wanted. Other losses are warnings that say who has lost what.
func TestTheLogTellsOfLostLeases(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			srv := startProxy(t, redistest.Start(t), func(o *Options) { o.Engine, o.Logger = engine, zap.New(core) })
			holder, other := dialClient(t, address(srv)), dialClient(t, address(srv))
			holder.quiet("CLIENT", "SETNAME", "billing")
			other.quiet("CLIENT", "SETNAME", "operator")

			holder.granted("LOCK", "short", "PX", "10")
			waitFor(t, "the end of the fixed lease", func() bool { return logs.FilterMessage("fixed lease expired").Len() == 1 })
			if e := logs.FilterMessage("fixed lease expired").All()[0]; e.Level != zap.DebugLevel {
				t.Errorf("a fixed lease that expires is logged as %s", e.Level)
			}
			if n := logs.FilterMessage("lease lost").Len(); n != 0 {
				t.Errorf("%d losses before the first", n)
			}

			holder.quiet("LOCK", "k", "OWNER", "job-7")
			if got := other.quiet("FORCEUNLOCK", "k"); got != ":1\r\n" {
				t.Fatalf("FORCEUNLOCK: %q", got)
			}
			waitFor(t, "the loss", func() bool { return logs.FilterMessage("lease lost").Len() == 1 })
			lost := logs.FilterMessage("lease lost").All()[0]
			fields := lost.ContextMap()
			held, _ := fields["held_seconds"].(float64)
			if lost.Level != zap.WarnLevel || fields["owner"] != "job-7" || fields["client"] != holder.nc.LocalAddr().String() ||
				fields["client_name"] != "billing" || fields["reason"] != "forced" || fields["key"] != "k" || held <= 0 || held > 60 {
				t.Errorf("%s: %v", lost.Level, fields)
			}
			forced := logs.FilterMessage("lock ended by FORCEUNLOCK").All()
			if len(forced) != 1 || forced[0].Level != logging.Audit {
				t.Fatalf("the audit entries: %v", forced)
			}
			fields = forced[0].ContextMap()
			if fields["owner"] != "job-7" || fields["client"] != other.nc.LocalAddr().String() || fields["client_name"] != "operator" || fields["user"] != "default" {
				t.Errorf("FORCEUNLOCK: %v", fields)
			}
		})
	}
}

func TestTheLogTellsOfLimits(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.ErrorLevel)
	srv := startProxy(t, redistest.Start(t), func(o *Options) {
		o.Logger, o.Locks.MaxWaiters, o.Limits.Clients = zap.New(core), 1, 3
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 1
	})
	a, b, c := dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))
	a.quiet("LOCK", "k")
	b.send("LOCK", "k")
	waitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	c.quiet("LOCK", "k")
	a.quiet("WATCH", "k")
	c.quiet("WATCH", "k")
	d := dialClient(t, address(srv))
	_, _ = d.frame() // the refusal, or the end
	for limit, client := range map[string]*peer{"max-waiters": c, "max-pins": c, "max-clients": d} {
		found := logs.FilterField(zap.String("limit", limit)).FilterField(zap.String("client", client.nc.LocalAddr().String())).All()
		if len(found) != 1 || found[0].Level != logging.Audit {
			t.Errorf("%s: %v", limit, found)
		}
	}
}

// startBlind runs a proxy whose Redis may not be available.
func startBlind(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	opts := Options{Listen: []string{"127.0.0.1:0"}, DrainTimeout: 1}
	change(&opts)
	Finish(&opts)
	srv, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return srv
}

func TestWrongCredentialsOfTheProxyAreAnError(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			srv := startBlind(t, func(o *Options) {
				o.Engine, o.Logger, o.ClientAuth = engine, zap.New(core), AuthProxy
				o.Upstream = upstream.Options{Addr: redis.Addr(), Password: "wrong"}
			})
			c := dialClient(t, address(srv))
			want := "-NOUPSTREAM upstream refused the proxy's credentials, nothing was sent\r\n"
			for _, cmd := range []string{"GET k", "LOCK k", "WATCH k"} {
				if got := c.quiet(strings.Fields(cmd)...); got != want {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			waitFor(t, "the log", func() bool { return logs.FilterMessage("upstream refused the proxy's credentials").Len() > 0 })
			if e := logs.FilterMessage("upstream refused the proxy's credentials").All()[0]; e.Level != zap.ErrorLevel {
				t.Errorf("it is logged as %s", e.Level)
			}
			if ready, _ := srv.Ready(); ready {
				t.Error("the proxy is ready")
			}
		})
	}
}

func TestAServerThatIsNoRedisIsNamed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(nc).ReadByte()
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			nc.Close()
		}
	}()
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			srv := startBlind(t, func(o *Options) {
				o.Engine, o.Logger, o.ClientAuth = engine, zap.New(core), AuthNone
				o.Upstream = upstream.Options{Addr: ln.Addr().String()}
			})
			c := dialClient(t, address(srv))
			want := "-NOUPSTREAM upstream is not a Redis server, nothing was sent\r\n"
			for _, cmd := range []string{"GET k", "LOCK k"} {
				if got := c.quiet(strings.Fields(cmd)...); got != want {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			waitFor(t, "the log", func() bool { return logs.FilterMessage("upstream is not a Redis server").Len() > 0 })
		})
	}
}
