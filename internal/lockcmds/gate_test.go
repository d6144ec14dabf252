package lockcmds

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A gate holds connections up while it is shut.
type gate struct {
	mu   sync.Mutex
	wide chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{wide: make(chan struct{})}
	close(g.wide)
	return g
}

// shut shuts an open gate, until open is called.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wide = make(chan struct{})
}

// open may be called again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.wide:
	default:
		close(g.wide)
	}
}

func (g *gate) pass() error {
	g.mu.Lock()
	wide := g.wide
	g.mu.Unlock()
	select {
	case <-wide:
		return nil
	case <-time.After(2 * patience):
		return errors.New("the gate stays shut")
	}
}

// gated is a connection whose writes pass a gate.
type gated struct {
	net.Conn
	gate *gate
}

func (g gated) Write(b []byte) (int, error) {
	if err := g.gate.pass(); err != nil {
		return 0, err
	}
	return g.Conn.Write(b)
}

// startGated runs an engine whose own connection stands still while the gate is shut. The gate is open when the engine
// is closed, whether the test has failed or not: Close waits for what is on its way.
func startGated(t *testing.T, srv *redistest.Server, lease time.Duration) (p *proxy, g *gate) {
	t.Helper()
	g = newGate()
	p = startProxy(t, srv, func(o *Options) {
		o.Lease = lease
		o.Redis = redislink.New(redislink.Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
			return gated{nc, g}, err
		}})
	})
	t.Cleanup(g.open)
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	return p, g
}

func TestGrantThatIsBeingRolledBackIsReplacedByANewOne(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, gate := startGated(t, srv, time.Minute)
	a := p.session(3)
	fence := a.fence("LOCK k PX 2000")
	srv.Do(t, "PEXPIRE", "k", 60000) // Redis judges later
	gate.shut()
	a.push()
	a.want("UNLOCK k", lostLeaseWords)
	a.send("LOCK k PX 60000")
	a.executed(2)
	gate.open()
	if again := fenceIn(t, a.reply()); again <= fence {
		t.Errorf("fence %d for a lock that was lost with fence %d", again, fence)
	}
	p.cleanedUp()
	equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
	a.want("UNLOCK k", ":1")
}

func TestPlaceOfTheSameOwnerAtAnotherProxyIsAskedForAgain(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, onlyWhenTold)
	holder, a, b := p.session(2), p.session(2), q.session(2)
	holder.fence("LOCK k PX 60000")
	a.waits("FAIRLOCK k OWNER me")
	b.waits("FAIRLOCK k OWNER me") // by a client library that has reconnected
	a.hangUp()
	p.cleanedUp()
	holder.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
}
