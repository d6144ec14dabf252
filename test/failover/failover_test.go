package failover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// failoverStand is a primary with two replicas and three Sentinels, and two proxies in front of them.
type failoverStand struct {
	servers   []*redistest.Server
	sentinels *redistest.Sentinels
	proxies   []*proxytest.Proxy
}

func newFailoverStand(t *testing.T, change ...func(*proxy.Options)) *failoverStand {
	t.Helper()
	user := []string{"--user", "sentinel", "on", ">secret", "~*", "&*", "+@all"} // of the Sentinels
	primary := redistest.Start(t, user...)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary, user...), redistest.StartReplica(t, primary, user...)}
	s := &failoverStand{
		servers:   append(replicas, primary),
		sentinels: redistest.StartSentinels(t, 3, primary, replicas, "auth-user sentinel", "auth-pass secret"),
	}
	for range 2 {
		s.proxies = append(s.proxies, proxytest.Start(t, primary, append([]func(*proxy.Options){func(o *proxy.Options) {
			o.Upstream.Addr = s.sentinels.URL()
		}}, change...)...))
	}
	return s
}

// wantSilence fails if an old primary still gets commands of clients.
func (s *failoverStand) wantSilence(t *testing.T, old *redistest.Server, counters []*counter) {
	t.Helper()
	values := func() (all []any) {
		for _, c := range counters {
			all = append(all, old.Do(t, "GET", c.key))
		}
		return all
	}
	if role, _ := old.Do(t, "ROLE").([]any); role[0] != "master" {
		return // it copies the new one
	}
	before, begin := values(), time.Now()
	proxytest.WaitFor(t, "another success of each client", func() bool {
		return !slices.ContainsFunc(counters, func(c *counter) bool { return c.latest.Load() <= begin.UnixNano() })
	})
	if after := values(); !slices.Equal(before, after) {
		t.Errorf("the old primary counts on: %v, before %v", after, before)
	}
}

// newPrimary returns a server that takes writes, other than the given one, and when it did first.
func (s *failoverStand) newPrimary(t *testing.T, old *redistest.Server) (*redistest.Server, time.Time) {
	t.Helper()
	var found *redistest.Server
	redistest.Eventually(t, 20*time.Second, "a replica to be promoted", func() bool {
		for _, one := range s.servers {
			if one == old {
				continue
			}
			// Sentinels close the connections of a server that they promote.
			if role, err := one.Client(t).Do(t.Context(), "ROLE").Slice(); err == nil && len(role) > 0 && role[0] == "master" {
				found = one
				return true
			}
		}
		return false
	})
	return found, time.Now()
}

// counter is a client that counts one key up, one command after the other, and connects again when its connection ends.
type counter struct {
	key, addr string

	sent, acked int // commands
	refused     map[string]int
	slowest     time.Duration
	successes   []time.Time
	latest      atomic.Int64 // success, in Unix nanoseconds
}

// run counts until stop is closed.
func (c *counter) run(stop <-chan struct{}) error {
	c.refused = map[string]int{}
	var nc net.Conn
	defer func() {
		if nc != nil {
			nc.Close()
		}
	}()
	command := resp.AppendCommand(nil, "INCR", c.key)
	b := make([]byte, 512)
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(2 * time.Millisecond):
		}
		if nc == nil {
			var err error
			if nc, err = net.Dial("tcp", c.addr); err != nil {
				return err
			}
		}
		begin := time.Now()
		_ = nc.SetDeadline(begin.Add(proxytest.Patience))
		c.sent++
		_, err := nc.Write(command)
		n := 0
		if err == nil {
			n, err = nc.Read(b)
		}
		c.slowest = max(c.slowest, time.Since(begin))
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return fmt.Errorf("%s: a client hangs", c.key)
		case err != nil:
			c.refused["closed"]++
			nc.Close()
			nc = nil
		case b[0] == ':':
			c.acked++
			c.successes = append(c.successes, time.Now())
			c.latest.Store(time.Now().UnixNano())
		default:
			code, _, _ := strings.Cut(string(b[:n]), " ")
			c.refused[code]++
		}
	}
}

// firstSuccess after a time.
func (c *counter) firstSuccess(after time.Time) time.Time {
	for _, at := range c.successes {
		if at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// Clients count, wait for a lock, and acquire locks with SYNC while the primary moves. No command is done twice, none fails in a planned failover, and no
// lock is granted that a client was told it holds.
func TestClientsAndLocksCrossAFailover(t *testing.T) {
	for _, fault := range []struct {
		name    string
		strike  func(s *failoverStand, primary *redistest.Server)
		planned bool
	}{
		{"planned", func(s *failoverStand, _ *redistest.Server) { s.sentinels.BeginFailover() }, true},
		{"killed", func(_ *failoverStand, primary *redistest.Server) { primary.Kill() }, false},
		{"stopped", func(_ *failoverStand, primary *redistest.Server) { primary.Pause() }, false},
		{"cut off from the Sentinels", func(_ *failoverStand, primary *redistest.Server) {
			primary.Do(t, "ACL", "SETUSER", "default", "-ping") // for Sentinels that are not let in, which try it all the same
			primary.Do(t, "ACL", "SETUSER", "sentinel", "off")
			primary.Do(t, "CLIENT", "KILL", "USER", "sentinel")
		}, true},
		{"cut off from all but the proxies", func(_ *failoverStand, primary *redistest.Server) {
			primary.Do(t, "ACL", "SETUSER", "default", "-ping", "-psync", "-sync", "-replconf")
			primary.Do(t, "ACL", "SETUSER", "sentinel", "off")
			primary.Do(t, "CLIENT", "KILL", "TYPE", "replica")
			primary.Do(t, "CLIENT", "KILL", "USER", "sentinel")
		}, true},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			var change []func(*proxy.Options)
			if fault.planned {
				change = append(change, proxytest.Patient)
			}
			s := newFailoverStand(t, change...)
			primary := s.sentinels.Primary()

			var counters []*counter
			stop := make(chan struct{})
			var running sync.WaitGroup
			end := sync.OnceFunc(func() {
				close(stop)
				running.Wait()
			})
			defer end()
			for i, srv := range s.proxies {
				for j := range 3 {
					c := &counter{key: fmt.Sprintf("counter:%d:%d", i, j), addr: srv.Addr()}
					counters = append(counters, c)
					running.Go(func() {
						if err := c.run(stop); err != nil {
							t.Error(err)
						}
					})
				}
			}
			var takers []*taker
			for i, srv := range s.proxies {
				k := &taker{name: fmt.Sprint("k", i, ":"), addr: srv.Addr()}
				takers = append(takers, k)
				running.Go(func() { k.run(t, stop) })
			}
			holder, waiter := s.proxies[0].Dial(t), s.proxies[len(s.proxies)-1].Dial(t)
			fence := proxytest.Integer(t, holder.Quiet("LOCK", "held"))
			waiter.Send("LOCK", "held", "WAIT", "300000")
			proxytest.WaitFor(t, "the waiter to wait", func() bool {
				return primary.Do(t, "PUBSUB", "NUMSUB", "redisson_lock__channel:{held}").([]any)[1] == int64(1)
			})
			primary.AwaitReplicas(t, 2)
			proxytest.WaitFor(t, "some locks", func() bool { return primary.Do(t, "DBSIZE").(int64) > 100 })

			still := proxytest.Standstill(t, s.servers[0])
			struck := time.Now()
			fault.strike(s, primary)
			now, promoted := s.newPrimary(t, primary)
			proxytest.WaitFor(t, "the proxies to follow", func() bool {
				return !slices.ContainsFunc(s.proxies, func(srv *proxytest.Proxy) bool { return srv.Stats().Moves == 0 })
			})
			moved := time.Now()
			// A client may have a command on its way to the old primary when the proxies have moved.
			proxytest.WaitFor(t, "a success of each client", func() bool {
				return !slices.ContainsFunc(counters, func(c *counter) bool { return c.latest.Load() <= moved.UnixNano() })
			})
			if primary.Pid() != 0 && fault.name != "stopped" {
				s.wantSilence(t, primary, counters)
			}
			end()
			t.Logf("a replica was promoted after %v, the proxies moved after another %v", promoted.Sub(struck), moved.Sub(promoted))
			for _, c := range counters {
				t.Logf("%s: sent %d, answered %d, errors %v, slowest %v, first success %v after the promotion", c.key, c.sent, c.acked, c.refused, c.slowest, c.firstSuccess(promoted).Sub(promoted))
				value, _ := strconv.Atoi(fmt.Sprint(now.Do(t, "GET", c.key)))
				if value > c.sent {
					t.Errorf("%s is %d after %d commands", c.key, value, c.sent)
				}
				if late := c.firstSuccess(promoted).Sub(promoted); late > 2*time.Second+still() { // milliseconds, if the machine has nothing else to do
					t.Errorf("%s: the first success is %v after the promotion, and the machine stood still for %v", c.key, late, still())
				}
				if fault.planned && len(c.refused) > 0 {
					t.Errorf("%s: errors in a planned failover: %v", c.key, c.refused)
				}
			}
			if reply := holder.Quiet("LOCK", "held"); proxytest.Integer(t, reply) != fence {
				t.Errorf("the holder enters again with %q, its fence was %d", reply, fence)
			}
			for _, want := range []string{":0\r\n", ":1\r\n"} {
				holder.Script("UNLOCK held", want)
			}
			reply, err := waiter.Frame()
			if err != nil || proxytest.Integer(t, reply) <= fence {
				t.Errorf("the waiter got %q, %v; the fence before was %d", reply, err, fence)
			}
			rival := s.proxies[0].Dial(t)
			for _, k := range takers {
				t.Logf("%s%d locks", k.name, len(k.took))
				for _, key := range k.took {
					rival.Script("TRYLOCK "+key, "$-1")
				}
			}
			proxytest.WaitFor(t, "a grant at the new primary", func() bool { // which has one replica at least
				return strings.HasPrefix(rival.Quiet("LOCK", "k", "SYNC", "1", "WAIT", "1000"), ":")
			})
		})
	}
}

func TestAFailoverIsOneWarning(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := newFailoverStand(t, func(o *proxy.Options) { o.Logger = zap.New(core) })
	primary := s.sentinels.Primary()
	for _, srv := range s.proxies {
		c := srv.Dial(t)
		c.Script("SET k v", "+OK")
	}
	for _, e := range logs.TakeAll() {
		if e.Level > zap.InfoLevel {
			t.Errorf("at a healthy start: %s %v", e.Message, e.ContextMap())
		}
	}
	primary.Pause()
	s.newPrimary(t, primary)
	proxytest.WaitFor(t, "the proxies to follow", func() bool {
		return !slices.ContainsFunc(s.proxies, func(srv *proxytest.Proxy) bool { return srv.Stats().Moves == 0 })
	})
	for _, srv := range s.proxies {
		c := srv.Dial(t)
		proxytest.WaitFor(t, "an answer", func() bool { return c.Quiet("PING") == "+PONG\r\n" })
	}
	for _, e := range logs.TakeAll() {
		if e.Level > zap.InfoLevel && e.Message != "the primary has moved" {
			t.Errorf("at a failover: %s %v", e.Message, e.ContextMap())
		}
	}
}

func TestSentinelsAndRedisHaveCredentialsOfTheirOwn(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--requirepass", "redis-secret", "--masterauth", "redis-secret")
	replica := redistest.StartReplica(t, primary)
	s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
	for _, one := range s.All {
		one.Do(t, "ACL", "SETUSER", "proxy", "on", ">sentinel-secret", "&*", "+@connection", "+sentinel|master", "+sentinel|get-master-addr-by-name", "+subscribe")
		one.Do(t, "ACL", "SETUSER", "default", "-@all", "+sentinel", "+ping", "+publish", "+hello", "+auth", "+client", "+info", "+acl")
	}
	_, port, _ := net.SplitHostPort(primary.Addr())
	_, replicaPort, _ := net.SplitHostPort(replica.Addr())
	var clients []*proxytest.Client
	srv := proxytest.Start(t, primary, func(o *proxy.Options) {
		o.ClientAuth = proxy.AuthProxy
		o.Upstream = upstream.Options{
			Addr: s.URL(), Password: "redis-secret",
			Sentinel: upstream.Sentinel{User: "proxy", Password: "sentinel-secret"},
			Map:      map[string]string{"127.0.0.1:" + port: "localhost:" + port, "127.0.0.1:" + replicaPort: "localhost:" + replicaPort},
		}
	})
	c := srv.Dial(t)
	c.Script("SET k v", "+OK", "LOCK l", ":")
	clients = append(clients, c, srv.Dial(t))
	failsOver := upstream.Options{Addr: s.URL(), Password: "redis-secret", Sentinel: upstream.Sentinel{User: "proxy", Password: "wrong"}}
	tryOutFails(t, failsOver, "WRONGPASS")
	failsOver.Sentinel.Password = "sentinel-secret"
	if err := proxytest.TryOut(t, failsOver, proxytest.Patience); err != nil {
		t.Errorf("with all passwords: %v", err)
	}
	failsOver.Addr += "x"
	tryOutFails(t, failsOver, "no primary of this name")
	s.All[0].Do(t, "ACL", "SETUSER", "proxy", "+role")
	noRedis := upstream.Options{Addr: s.All[0].Addr(), User: "proxy", Password: "sentinel-secret"}
	tryOutFails(t, noRedis, "it is a Sentinel")
	for _, one := range s.All {
		one.Kill()
	}
	for _, c := range clients {
		c.Script("SET k v", "+OK")
	}
}

// tryOutFails tries out what fails with certain words. Some failures are told when the time is over. A busy machine may take longer to find them.
func tryOutFails(t *testing.T, to upstream.Options, words string) {
	t.Helper()
	var err error
	for limit := 500 * time.Millisecond; limit < proxytest.Patience; limit *= 2 {
		if err = proxytest.TryOut(t, to, limit); err != nil && strings.Contains(err.Error(), words) {
			return
		}
	}
	t.Errorf("--check --connect: %v, want %q", err, words)
}

func TestSentinelsServeTLS(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	a := redistest.NewAuthority(t)
	s := redistest.StartSentinelsTLS(t, a, 3, primary, []*redistest.Server{replica})
	cert, err := tls.LoadX509KeyPair(a.Issue(t, "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	c := proxytest.Dial(t, proxytest.Start(t, primary, func(o *proxy.Options) {
		o.Upstream.Addr = "sentinel://" + strings.Join(s.TLS, ",") + "/" + s.Name
		o.Upstream.Sentinel.TLS = func() *tls.Config { // not for Redis
			return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{cert}}
		}
	}).Addr())
	c.Script("SET k v", "+OK")
	if now := s.Failover(); now != replica {
		t.Fatal("no failover")
	}
	proxytest.WaitFor(t, "the replica to take a write", func() bool {
		return c.Quiet("SET", "k", "w") == "+OK\r\n" && replica.Do(t, "GET", "k") == "w"
	})
	u, err := upstream.New(upstream.Options{Addr: "sentinel://" + s.TLS[0] + "/" + s.Name, DialTimeout: proxytest.Patience, Logger: zap.NewNop(), Sentinel: upstream.Sentinel{TLS: func() *tls.Config {
		return &tls.Config{RootCAs: redistest.NewAuthority(t).Pool(), Certificates: []tls.Certificate{cert}}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	proxytest.WaitFor(t, "a Sentinel of another authority to be refused", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it is tried again until then, and the last attempt may be cut short
		defer cancel()
		err := u.TryOut(ctx)
		if err == nil {
			t.Fatal("it is not refused")
		}
		return strings.Contains(err.Error(), "certificate signed by unknown authority")
	})
}
