package failover

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// known ends Redis, and waits until the proxy knows: it has a lane that is lost.
func known(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	srv.Dial(t).Quiet("PING")
	srv.Redis.Kill()
	proxytest.WaitFor(t, "the proxy to know", func() bool {
		ready, _ := srv.Ready()
		return !ready
	})
}

func durable() []string { return []string{"--appendonly", "yes", "--appendfsync", "always"} }

// A client that holds a lock is closed last: here not at all, although Redis is away for longer than others wait.
func TestHoldersOutliveARestart(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t, durable()...))
	const n = 100
	var holders []*proxytest.Client
	for i := range n {
		c := srv.Dial(t)
		c.Script(fmt.Sprintf("LOCK k%d GRACE 0", i), ":")
		holders = append(holders, c)
	}
	other, waiter := srv.Dial(t), srv.Dial(t)
	other.Script("SET x y", "+OK")
	waiter.Send("LOCK", "k0")
	proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	known(t, srv)
	for i, c := range holders {
		switch i % 3 {
		case 0:
			c.Send("GET", "x")
		case 1:
			c.Raw(proxytest.Inline("MULTI", "GET x", "EXEC"))
		default:
			c.Send("LOCKINFO", fmt.Sprint("k", i))
		}
	}
	other.Loses("GET x") // it has waited for as long as any other client would
	srv.Redis.Restart()
	for i, c := range holders {
		switch i % 3 {
		case 0:
			c.Gets("$1\r\ny")
		case 1:
			c.Gets("+OK", "+QUEUED", "*1\r\n$1\r\ny")
		default:
			c.Gets("*")
		}
		c.Script(fmt.Sprint("UNLOCK k", i), ":1")
	}
	waiter.Gets(":")
	if s := srv.Stats(); s.LocksLeft != 0 {
		t.Errorf("%d locks were left", s.LocksLeft)
	}
}

// The client has not gone: it comes back, and may count on the lease that it was told, whatever GRACE says.
func TestALostAnswerLeavesLocksTheirLeases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, durable()...)
	core, logs := observer.New(zap.InfoLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
	c := srv.Dial(t)
	c.Script("LOCK k GRACE 0", ":", "LOCK l OWNER me GRACE 0", ":")
	redis.Pause()
	c.Send("GET", "k")
	proxytest.WaitFor(t, "the GET to be sent", func() bool { return srv.Unanswered() >= 1 })
	redis.Kill()
	c.Ends()
	redis.Restart()
	proxytest.Recovers(t, srv)
	other := srv.Dial(t)
	other.Script("TRYLOCK k", "$-1", "TRYLOCK l", "$-1")
	c = srv.Dial(t)
	c.Script("LOCK l OWNER me", ":", "UNLOCK l OWNER me", ":0", "UNLOCK l OWNER me", ":1")
	if s := srv.Stats(); s.LocksLeft != 2 {
		t.Errorf("%d locks were left", s.LocksLeft)
	}
	if n := logs.FilterMessageSnippet("keep the rest of their leases").Len(); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// The same for a lock command: the lock that it is about is not counted, and its UNLOCK is done in the end.
func TestALostUnlockLeavesTheOtherLocks(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	link := redistest.StartRelay(t, redis.Addr())
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Addr = link.Addr() })
	for i, heard := range []redistest.Fate{redistest.Heard, redistest.Unheard} {
		c, gone := srv.Dial(t), fmt.Sprint("gone", i)
		c.Script("LOCK "+gone, ":", fmt.Sprintf("LOCK a%d GRACE 0", i), ":", fmt.Sprintf("LOCK b%d GRACE 0", i), ":")
		link.CutAt(gone, heard)
		c.Send("UNLOCK", gone)
		c.Ends()
		proxytest.WaitFor(t, "the lock to be free", func() bool { return redis.Do(t, "EXISTS", gone) == int64(0) })
		if s := srv.Stats(); s.LocksLeft != int64(2*i+2) {
			t.Errorf("%d locks were left", s.LocksLeft)
		}
		if n := redis.Do(t, "EXISTS", fmt.Sprint("a", i), fmt.Sprint("b", i)); n != int64(2) {
			t.Errorf("Redis has %v of the others", n)
		}
		proxytest.Recovers(t, srv)
	}
}

func TestAHolderIsClosedWhenItsLastLeaseHasEnded(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	c.Script("HELLO 3", "%7", "LOCK k PX 3000", ":", "LOCK l PX 3000", ":")
	known(t, srv)
	began := time.Now()
	c.Send("GET", "x")
	b, err := c.Frame()
	for ; err == nil && strings.HasPrefix(b, ">"); b, err = c.Frame() { // the losses
	}
	if err == nil || b != "" {
		t.Errorf("%q, %v instead of the end", b, err)
	}
	if took := time.Since(began); took < 1500*time.Millisecond { // a part of the leases may be over
		t.Errorf("closed after %v", took)
	}
}

// A client that has not logged in is told why Redis is away, and nothing else.
func TestTheReasonOfAnOutageNeedsNoLogin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Password = "secret" })
	known(t, srv)
	c := srv.Dial(t)
	info := c.Ask("INFO lockproxy")
	for word, wanted := range map[string]bool{"upstream:down": true, "upstream_error:": true, "connected_clients": false, "lockproxy_uuid": false} {
		if strings.Contains(info, word) != wanted {
			t.Errorf("%s in %q", word, info)
		}
	}
	c.Loses("AUTH secret")
	redis.Restart()
	proxytest.WaitFor(t, "the end of the outage", func() bool { return srv.Anew(t, "INFO lockproxy") == "-NOAUTH Authentication required.\r\n" })
}

// The first client of an outage is told of it as well.
func TestAQuietProxyKnowsThatRedisIsAway(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	srv.Anew(t, "PING") // there is a lane, and no client on it
	srv.Redis.Kill()
	proxytest.WaitFor(t, "the proxy to know", func() bool {
		ready, _ := srv.Ready()
		return !ready
	})
	if info := srv.Anew(t, "INFO lockproxy"); !strings.Contains(info, "upstream:down") {
		t.Errorf("%q", info)
	}
}

// Many clients that come back at once are closed one after the other, and are served when Redis is.
func TestACrowdDoesNotSpin(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	known(t, srv)
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			for range 3 {
				began := time.Now()
				if b := srv.Anew(t, "HELLO 3"); b != "" {
					t.Errorf("the client got %q", b)
				}
				if took := time.Since(began); took < 300*time.Millisecond {
					t.Errorf("closed after %v", took)
				}
			}
		})
	}
	crowd.Wait()
	srv.Redis.Restart()
	proxytest.Recovers(t, srv)
}

// What has waited for Redis waits until its data are loaded. A client that comes meanwhile is told that they are not, or
// is closed.
func TestWhatHasWaitedIsNotSentToARedisThatLoads(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--enable-debug-command", "yes", "--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024")
	srv := proxytest.Start(t, redis, proxytest.Patient)
	redis.Do(t, "DEBUG", "POPULATE", "10000")
	redis.Do(t, "SAVE")
	ways := map[string]*proxytest.Client{"GET key:1": nil, "WATCH k": nil, "TRYLOCK l": nil}
	for line := range ways {
		ways[line] = srv.Dial(t)
		ways[line].Quiet("PING")
	}
	known(t, srv)
	for line, c := range ways {
		c.Send(strings.Fields(line)...)
	}
	proxytest.WaitFor(t, "the commands to wait", func() bool { return srv.Unanswered() >= 2 }) // WATCH waits for a pin
	redis.Restart()
	for line, want := range map[string]string{"GET key:1": "$7\r\nvalue:1", "WATCH k": "+OK", "TRYLOCK l": ":"} {
		if b := ways[line].Next(); !strings.HasPrefix(b, want) {
			t.Errorf("%s: %q", line, b)
		}
	}
}
