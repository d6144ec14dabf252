package blackbox

import (
	"bufio"
	"net"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A fixed lease that runs out has done what the client wanted. Other losses are warnings that say who has lost what.
func TestTheLogTellsOfLostLeases(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Logger = zap.New(core) })
	holder, other := srv.Dial(t), srv.Dial(t)
	holder.Quiet("CLIENT", "SETNAME", "billing")
	other.Quiet("CLIENT", "SETNAME", "operator")

	holder.Granted("LOCK", "short", "PX", "10")
	proxytest.WaitFor(t, "the end of the fixed lease", func() bool { return logs.FilterMessage("fixed lease expired").Len() == 1 })
	if e := logs.FilterMessage("fixed lease expired").All()[0]; e.Level != zap.DebugLevel {
		t.Errorf("a fixed lease that expires is logged as %s", e.Level)
	}
	if n := logs.FilterMessage("lease lost").Len(); n != 0 {
		t.Errorf("%d losses before the first", n)
	}

	holder.Quiet("LOCK", "k", "OWNER", "job-7")
	other.Script("FORCEUNLOCK k", ":1")
	proxytest.WaitFor(t, "the loss", func() bool { return logs.FilterMessage("lease lost").Len() == 1 })
	lost := logs.FilterMessage("lease lost").All()[0]
	fields := lost.ContextMap()
	held, _ := fields["held_seconds"].(float64)
	if lost.Level != zap.WarnLevel || fields["owner"] != "job-7" || fields["client"] != holder.Conn.LocalAddr().String() ||
		fields["client_name"] != "billing" || fields["reason"] != "forced" || fields["key"] != "k" || held <= 0 || held > 60 {
		t.Errorf("%s: %v", lost.Level, fields)
	}
	forced := logs.FilterMessage("lock ended by FORCEUNLOCK").All()
	if len(forced) != 1 || forced[0].Level != logging.Audit {
		t.Fatalf("the audit entries: %v", forced)
	}
	fields = forced[0].ContextMap()
	if fields["owner"] != "job-7" || fields["client"] != other.Conn.LocalAddr().String() || fields["client_name"] != "operator" || fields["user"] != "default" {
		t.Errorf("FORCEUNLOCK: %v", fields)
	}
}

func TestTheLogTellsOfLimits(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.ErrorLevel)
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Logger, o.Locks.MaxWaiters, o.Limits.Clients = zap.New(core), 1, 3
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 1
	})
	a, b, c := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	a.Quiet("LOCK", "k")
	b.Send("LOCK", "k")
	proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	c.Quiet("LOCK", "k")
	a.Quiet("WATCH", "k")
	c.Quiet("BLPOP", "l", "0")
	d := srv.Dial(t)
	_, _ = d.Frame() // the refusal, or the end
	for limit, client := range map[string]*proxytest.Client{"max-waiters": c, "max-pins": c, "max-clients": d} {
		found := logs.FilterField(zap.String("limit", limit)).FilterField(zap.String("client", client.Conn.LocalAddr().String())).All()
		if len(found) != 1 || found[0].Level != logging.Audit {
			t.Errorf("%s: %v", limit, found)
		}
	}
}

// startBlind runs a proxy whose Redis may not be available.
func startBlind(t *testing.T, change func(*proxy.Options)) *proxytest.Proxy {
	t.Helper()
	opts := proxy.Options{Listen: []string{"127.0.0.1:0"}, DrainTimeout: 1}
	change(&opts)
	srv, _ := proxytest.Launch(t, opts)
	return srv
}

func TestWrongCredentialsOfTheProxyAreAnError(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	core, logs := observer.New(zap.InfoLevel)
	srv := startBlind(t, func(o *proxy.Options) {
		o.Logger, o.ClientAuth = zap.New(core), proxy.AuthProxy
		o.Upstream = upstream.Options{Addr: redis.Addr(), Password: "wrong"}
	})
	for _, cmd := range []string{"GET k", "LOCK k", "WATCH k"} {
		srv.Dial(t).Loses(cmd)
	}
	proxytest.WaitFor(t, "the log", func() bool { return logs.FilterMessage("upstream refused the proxy's credentials").Len() > 0 })
	if e := logs.FilterMessage("upstream refused the proxy's credentials").All()[0]; e.Level != zap.ErrorLevel {
		t.Errorf("it is logged as %s", e.Level)
	}
	if ready, _ := srv.Ready(); ready {
		t.Error("the proxy is ready")
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
	core, logs := observer.New(zap.InfoLevel)
	srv := startBlind(t, func(o *proxy.Options) {
		o.Logger, o.ClientAuth = zap.New(core), proxy.AuthNone
		o.Upstream = upstream.Options{Addr: ln.Addr().String()}
	})
	for _, cmd := range []string{"GET k", "LOCK k"} {
		srv.Dial(t).Loses(cmd)
	}
	proxytest.WaitFor(t, "the log", func() bool { return logs.FilterMessage("upstream is not a Redis server").Len() > 0 })
}
