// Package proxytest is what the tests of a whole proxy have in common: proxies in front of real servers, clients that
// see bytes, and the comparison of a script's replies with those of Redis. The suites under test/ say what is demanded.
package proxytest

import (
	gocmp "cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Main runs the tests of a package, a few at a time, and demands that they leave no goroutine behind.
func Main(m *testing.M) {
	ants.Release()                     // the pool that importing ants starts
	_ = flag.Set("rapid.checks", "40") // each takes a tenth of a second; the command line may say more
	_ = flag.Set("test.parallel", "4") // parallel tests wait for timeouts, failovers and the like
	goleak.VerifyTestMain(m)
}

// Patience is how long a test waits for what must come.
const Patience = 10 * time.Second

// InTime measures up to three times how long something takes. One time within the limit is enough: the machine may
// stand still for a moment.
func InTime(t testing.TB, what string, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 3 {
		took := measure()
		if took <= limit {
			return
		}
		all = append(all, took)
	}
	t.Errorf("%s takes more than %v each time: %v", what, limit, all)
}

// Standstill asks a server directly until the test ends. longest is the longest time for which the machine, or the
// server, has stood still.
func Standstill(t testing.TB, server *redistest.Server) (longest func() time.Duration) {
	t.Helper()
	c := server.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	var most, last atomic.Int64
	last.Store(time.Now().UnixNano())
	longest = func() time.Duration { return time.Duration(max(most.Load(), time.Now().UnixNano()-last.Load())) }
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_ = c.Ping(ctx).Err() // Sentinels close connections
			most.Store(int64(longest()))
			last.Store(time.Now().UnixNano())
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
	return longest
}

// Meanwhile has functions run over and over, all at the same time, until End. The zero value is ready to use.
type Meanwhile struct {
	over    atomic.Bool
	running sync.WaitGroup
}

// Go runs another one, with the number of each round. It has ended when it returns false.
func (m *Meanwhile) Go(f func(round int) bool) {
	m.running.Go(func() {
		for round := 0; !m.over.Load() && f(round); round++ {
		}
	})
}

// End waits for the rounds that have begun.
func (m *Meanwhile) End() {
	m.over.Store(true)
	m.running.Wait()
}

// Finish fills in the options that a test leaves open.
func Finish(o *proxy.Options) {
	orElse(&o.ClientAuth, proxy.AuthUpstream)
	orElse(&o.ProxyProtocol, proxy.ProxyOff)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	orElse(&o.DrainTimeout, 10*time.Second)
	orElse(&o.MaxEngines, 256)
	orElse(&o.Locks.Lease, 30*time.Second)
	orElse(&o.Locks.MaxWaiters, 100_000)
	orElse(&o.Upstream.DialTimeout, 3*time.Second)
	orElse(&o.Upstream.FailoverWait, time.Second)
	orElse(&o.Upstream.MaxLanes, 256)
	orElse(&o.Upstream.Pins.Max, 1000)
	orElse(&o.Upstream.Pins.Wait, time.Second)
	orElse(&o.Upstream.Pins.MaxLogins, 16)
	orElse(&o.Upstream.Pins.LoginWait, Patience)
	l := &o.Limits
	orElse(&l.Clients, 10_000)
	for _, bytes := range []*int{&l.Memory, &l.Query, &l.Output, &l.PubSub.Hard, &l.PubSub.Soft} {
		orElse(bytes, 1<<30)
	}
	orElse(&l.Unanswered, 64<<20)
	orElse(&l.PubSub.SoftTime, time.Minute)
	orElse(&l.LargeCommand, Patience)
	orElse(&l.Handshake, Patience)
}

func orElse[T comparable](v *T, other T) { *v = gocmp.Or(*v, other) }

// Proxy is a running proxy.
type Proxy struct {
	*proxy.Server
	Options proxy.Options     // those that are in force
	Redis   *redistest.Server // behind it, if Start knows it
}

// Start runs a proxy in front of redis until the test ends. change may adjust its options.
func Start(t testing.TB, redis *redistest.Server, change ...func(*proxy.Options)) *Proxy {
	t.Helper()
	opts := proxy.Options{
		Listen:       []string{loopback},
		Upstream:     upstream.Options{Addr: redis.Addr()},
		DrainTimeout: 50 * time.Millisecond,
	}
	for _, f := range change {
		f(&opts)
	}
	srv, _ := Serve(t, opts)
	srv.Redis = redis
	return srv
}

// Serve runs a proxy until the test ends, or stop is called. It has found Redis when it returns.
func Serve(t testing.TB, opts proxy.Options) (srv *Proxy, stop func()) {
	t.Helper()
	srv, stop = Launch(t, opts)
	redistest.Eventually(t, Patience, "the proxy to be ready", func() bool {
		ready, _ := srv.Ready()
		return ready
	})
	return srv, stop
}

// Launch is Serve for a proxy that may not find Redis.
func Launch(t testing.TB, opts proxy.Options) (srv *Proxy, stop func()) {
	t.Helper()
	Finish(&opts)
	core, bugs := observer.New(zap.ErrorLevel)
	tee := func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) }
	opts.Logger = opts.Logger.WithOptions(zap.WrapCore(tee))
	server, err := proxy.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if n := server.Stats().Closed["panic"]; n > 0 {
			t.Errorf("%d panics in sessions", n)
			for _, bug := range bugs.FilterMessageSnippet("BUG").All() {
				t.Errorf("%s: %v\n%s", bug.Message, bug.ContextMap()["panic"], bug.ContextMap()["stack"])
			}
		}
	})
	t.Cleanup(stop)
	return &Proxy{Server: server, Options: opts}, stop
}

// loopback is where proxies listen by default.
const loopback = "127.0.0.1:0"

// WithTLS has a proxy listen for TLS, too. Goroutines serve clients that speak TLS, and event loops plain ones.
func WithTLS(o *proxy.Options) { o.Listen, o.TLS = append(o.Listen, "tls:"+loopback), certificate() }

// certificate is made once for all tests of a program. Clients do not look at it.
var certificate = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, failed := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err = errors.Join(err, failed); err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
})

// Addr is where clients connect.
func (srv *Proxy) Addr() string { return srv.Addrs()[0].String() }

// Dial connects a client.
func (srv *Proxy) Dial(t testing.TB) *Client {
	t.Helper()
	return Dial(t, srv.Addr())
}

// StatusOf is what the proxy says of a client; nil: it has gone.
func (srv *Proxy) StatusOf(c *Client) (found *proxy.ClientStatus) {
	srv.EachClient(func(s proxy.ClientStatus) {
		if s.Addr == c.Conn.LocalAddr().String() {
			found = &s
		}
	})
	return found
}

// WaitFor waits for what must come.
func WaitFor(t testing.TB, claim string, holds func() bool) {
	t.Helper()
	redistest.Eventually(t, Patience, claim, holds)
}

// Unanswered is how many commands of all clients are unanswered.
func (srv *Proxy) Unanswered() (n int) {
	srv.EachClient(func(s proxy.ClientStatus) { n += s.Unanswered })
	return n
}

// Recovers waits until a command of a new client is served.
func Recovers(t *testing.T, srv *Proxy) {
	t.Helper()
	redistest.Eventually(t, Patience, "the proxy to serve again", func() bool {
		c := Dial(t, srv.Addr())
		defer c.Conn.Close()
		c.Side = &Side{T: t}
		c.Send("PING")
		b, _ := c.Frame()
		return b == "+PONG\r\n"
	})
}

// StartOverCluster runs a proxy in front of a cluster.
func StartOverCluster(t testing.TB, c *redistest.Cluster, change ...func(*proxy.Options)) *Proxy {
	t.Helper()
	over := func(o *proxy.Options) { o.Upstream.Addr = "cluster://" + c.Addrs() }
	return Start(t, c.Nodes[0], append([]func(*proxy.Options){over}, change...)...)
}

// Patient has commands wait for servers longer than by default: a busy machine is no failure.
func Patient(o *proxy.Options) { o.Upstream.FailoverWait = Patience }

// Blocked is the number of clients that wait in these servers.
func Blocked(t testing.TB, servers ...*redistest.Server) (n int) {
	for _, server := range servers {
		n += server.Info(t, "clients", "blocked_clients:")
	}
	return n
}

// AwaitBlocked waits until n clients wait in these servers.
func AwaitBlocked(t testing.TB, n int, servers ...*redistest.Server) {
	t.Helper()
	WaitFor(t, fmt.Sprintf("%d blocked clients", n), func() bool { return Blocked(t, servers...) == n })
}

// KeyOf is a key that a node serves.
func KeyOf(t testing.TB, c *redistest.Cluster, node *redistest.Server) string {
	for i := range 1000 {
		key := fmt.Sprint("key", i)
		if slot := int(node.Do(t, "CLUSTER", "KEYSLOT", key).(int64)); c.Owner(slot) == node {
			return key
		}
	}
	t.Fatal("no key")
	return ""
}

// TryOut makes the connections that --check makes, within a time.
func TryOut(t *testing.T, to upstream.Options, limit time.Duration) error {
	t.Helper()
	opts := proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: to}
	Finish(&opts)
	srv, err := proxy.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return srv.TryOut(ctx)
}

// Measured is what all clients of a proxy have by their own count, in bytes.
func (srv *Proxy) Measured() (sum int) {
	for c := range srv.Shared().Clients.Each(nil) {
		if s, ok := c.(*session.Session); ok {
			sum += s.Measure()
		}
	}
	return sum
}

// Paused is how many clients are not read at present.
func (srv *Proxy) Paused() (n int) {
	srv.EachClient(func(s proxy.ClientStatus) {
		if s.Paused {
			n++
		}
	})
	return n
}

// Alter changes options of a running proxy.
func (srv *Proxy) Alter(change func(*proxy.Options)) {
	change(&srv.Options)
	srv.Change(srv.Options)
}

// LittleMemory is a memory limit under which large commands are streamed.
func LittleMemory(o *proxy.Options) { o.Limits.Memory = 24 << 20 }

// Follows is how long proxies may take to follow Sentinels that agree on a primary without a later epoch.
const Follows = 30 * time.Second
