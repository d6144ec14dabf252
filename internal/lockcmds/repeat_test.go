package lockcmds

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A call whose answer was lost with its connection is sent again, and what no client relies on is rolled back.

const inDoubtReply = "-INDOUBT sent, but no answer came"

func TestAcquireInDoubtBehindARelease(t *testing.T) {
	srv := redistest.Start(t)
	for _, verb := range []string{"LOCK", "TRYLOCK"} {
		p := startProxy(t, srv, nil)
		a, b := p.session(2), p.session(2)
		first := a.fence("LOCK k")
		answer := a.Lane.HoldBack()
		a.send("UNLOCK k")
		a.Lane.Fail(contract.ErrInDoubt)
		a.send(verb + " k")
		a.executed(2)
		a.Lane.Fail(nil)
		answer()
		equal(t, "unlock", a.reply(), ":1")
		if second := fenceIn(t, a.reply()); second <= first {
			t.Errorf("%s: fence %d after %d", verb, second, first)
		}
		equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
		a.want("UNLOCK k", ":1")
		b.fence("LOCK k")
		b.want("UNLOCK k", ":1")
	}
}

func TestEveryAnswerThatIsLostIsAskedForAgain(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a, b := p.session(2), p.session(2)
	for _, owner := range []string{"", " OWNER me"} {
		a.Lane.Fail(contract.ErrInDoubt) // Redis executes every command, and no answer arrives
		fence := a.fence("LOCK k" + owner)
		equal(t, "re-entry", a.fence("LOCK k"+owner), fence)
		a.want("EXTENDLOCK k PX 60000"+owner, ":1")
		name := p.ownerOf(a)
		if owner != "" {
			name = "me"
		}
		equal(t, "holds", p.holds("k", name), "2")
		a.want("UNLOCK k"+owner, ":0")
		equal(t, "holds", p.holds("k", name), "1")
		a.want("UNLOCK k"+owner, inDoubtReply) // the lock is gone: by this release, or lost before
		a.Lane.Fail(nil)
		b.fence("TRYLOCK k")
		b.want("UNLOCK k", ":1")
	}
}

func TestReleaseOfAnotherSessionsHoldIsRepeatable(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, leaseOfAMinute), startProxy(t, srv, nil)
	a, b, c := p.session(2), p.session(2), q.session(2)
	for range 3 {
		a.fence("LOCK k OWNER me")
	}
	b.Lane.Fail(contract.ErrInDoubt)
	b.want("UNLOCK k OWNER me", ":0")
	equal(t, "holds", p.holds("k", "me"), "2")
	c.Lane.Fail(contract.ErrInDoubt) // its proxy does not know the grant, so a copy could find a later one
	c.want("UNLOCK k OWNER me", inDoubtReply)
	equal(t, "holds", p.holds("k", "me"), "1")
	a.want("UNLOCK k OWNER me", ":1")
}

func TestExtensionInDoubtAfterTheDeadlineLeavesNothing(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a := p.session(3)
	a.fence("LOCK k PX 2000")
	a.Lane.Fail(contract.ErrInDoubt)
	answer := a.Lane.HoldBack()
	a.send("EXTENDLOCK k PX 3600000")
	a.push()
	answer()
	equal(t, "extend", a.reply(), lostLeaseWords)
	p.eventuallyHeld("k", p.ownerOf(a), "")
}

// cutConn loses the answers while cut is positive: it ends behind what it has sent.
type cutConn struct {
	net.Conn
	cut *atomic.Int64
}

func (c cutConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, []byte("EVAL")) && c.cut.Add(-1) >= 0 {
		c.Conn.Close()
	}
	return n, err
}

// The acquire may not wait. It asks once more, because its session was told meanwhile of the loss of the grant that it
// was to deepen.
func TestLastAttemptWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	srv := redistest.Start(t)
	var cut atomic.Int64
	p := startProxy(t, srv, func(o *Options) {
		o.Lease = time.Minute
		o.Redis = linkTo(t, redislink.Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
			return cutConn{c, &cut}, err
		}})
	})
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"LOCK k WAIT 0", "TRYLOCK k", "FAIRLOCK k WAIT 0"} {
		a := p.session(2)
		fence := a.fence("LOCK k")
		answer := a.withheld(verb)
		p.e.step(func(l *table.Table) {
			l.Lost(l.Hold(table.Key{Lock: "k", Owner: p.ownerOf(a), Kind: exclusive{}}), string(reasonForced), true, nil)
		})
		cut.Store(4)
		answer()
		if again := fenceIn(t, a.reply()); again <= fence {
			t.Errorf("%s: fence %d for a lock that was lost with fence %d", verb, again, fence)
		}
		p.cleanedUp()
		equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
		a.want("UNLOCK k", ":1")
	}
}

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

func (g *gate) pass() {
	g.mu.Lock()
	wide := g.wide
	g.mu.Unlock()
	<-wide
}

// gated is a connection whose writes pass a gate.
type gated struct {
	net.Conn
	gate *gate
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.pass()
	return g.Conn.Write(b)
}

// startGated runs an engine whose own connection stands still while the gate is shut. The gate is open when the engine
// is closed, whether the test has failed or not: Close waits for what is on its way.
func startGated(t *testing.T, srv *redistest.Server, lease time.Duration) (p *proxy, g *gate) {
	t.Helper()
	g = newGate()
	p = startProxy(t, srv, func(o *Options) {
		o.Lease = lease
		o.Redis = linkTo(t, redislink.Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
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
