package lockcmds

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/redistest"
)

// Holds that nobody has are given back on the engine's own connection, while clients go on.

func TestCommandsWaitForWhatIsBeingGivenBack(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b := p.session(2), p.session(2)
	k := holdKey{"k", p.ownerOf(a)}
	var r *returns
	returning := func() {
		p.e.mu.Lock()
		defer p.e.mu.Unlock()
		r = &returns{n: 1}
		p.e.returning[k] = r
	}
	for _, step := range []struct{ cmd, reply string }{
		{"LOCK k", ":"}, {"LOCK k", ":"}, {"EXTENDLOCK k PX 60000", ":1"}, {"UNLOCK k", ":0"}, {"UNLOCK k", ":1"},
	} {
		returning()
		sent := a.Lane.Answered.Load()
		a.send(step.cmd)
		a.quiet(10 * time.Millisecond)
		equal(t, "scripts before it may", a.Lane.Answered.Load(), sent)
		b.want("UNLOCK k", notHeldReply) // others need not wait
		p.e.returned(k, r, true)
		if got := a.reply(); !strings.HasPrefix(got, step.reply) {
			t.Errorf("%s: %s", step.cmd, got)
		}
	}
	a.fence("LOCK k")
	returning()
	a.send("UNLOCK k")
	a.hangUp()
	p.e.returned(k, r, true) // the client has asked for it
	p.eventuallyHeld("k", k.owner, "")
	b.fence("LOCK k")
}

func TestDeferredReleaseOfAClientThatHangsUpIsOneRelease(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, elsewhere := p.session(2), q.session(2)
	a.fence("LOCK k OWNER me GRACE 0")
	elsewhere.fence("LOCK k OWNER me")
	k, r := holdKey{"k", "me"}, &returns{n: 1}
	p.e.mu.Lock()
	p.e.returning[k] = r
	p.e.mu.Unlock()
	a.send("UNLOCK k OWNER me")
	a.hangUp()
	p.e.returned(k, r, true)
	p.eventuallyHeld("k", "me", "1")
	p.cleanedUp()
	elsewhere.want("UNLOCK k OWNER me", ":1")
}

func TestNobodyWaitsLongForAGiveBack(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a := p.session(3)
	a.fence("LOCK k PX 2000")
	srv.Pause()
	a.push()
	a.want("UNLOCK k", lostLeaseReply) // says what is known
	a.send("TRYLOCK k WAIT 100")
	a.send("LOCKLIST")
	redistest.Eventually(t, patience, "the deferred acquire", func() bool {
		a.Lock()
		defer a.Unlock()
		return a.Pending() == 1
	})
	srv.Continue()
	a.reply()
	equal(t, "LOCKLIST", a.reply()[:2], "*[")
}

// sendTooLate has Redis execute an acquire, and its answer arrive when the lease has passed, after what happens meanwhile.
func (s *session) sendTooLate(line string, meanwhile func()) {
	s.t.Helper()
	answer := s.Lane.HoldBack()
	executed := s.Lane.Answered.Load() + 1
	s.send(line)
	s.executed(executed)
	s.p.e.mu.Lock()
	s.p.e.clients[s.ID].ask.lease = 0 // has passed
	s.p.e.mu.Unlock()
	meanwhile()
	answer()
}

func TestAcquireThatCameTooLateIsRefusedWhenNothingIsLeft(t *testing.T) {
	srv := redistest.Start(t)
	q := startProxy(t, srv, nil)
	elsewhere := q.session(2)
	elsewhere.fence("LOCK k OWNER me PX 60000")
	p := startProxy(t, srv, func(o *Options) { o.deferLimit = time.Minute })
	a := p.session(2)
	a.sendTooLate("TRYLOCK k OWNER me PX 60000", srv.Pause)
	a.quiet(50 * time.Millisecond)
	srv.Continue()
	equal(t, "acquire", a.reply(), "(nil)")
	equal(t, "holds", p.holds("k", "me"), "1")

	p = startProxy(t, srv, func(o *Options) { o.deferLimit = 50 * time.Millisecond })
	a = p.session(2)
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	a.sendTooLate("TRYLOCK k OWNER me PX 60000", srv.Pause)
	equal(t, "acquire while redis does not answer", a.reply(), inDoubtReply)
	srv.Continue()
	p.eventuallyHeld("k", "me", "1")
	elsewhere.want("UNLOCK k OWNER me", ":1")
}

func TestReentryThatCameTooLateLeavesTheLeaseOfTheHold(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.deferLimit = time.Minute })
	a := p.session(3)
	fence := a.fence("LOCK k PX 60000")
	tooLate := func(meanwhile func()) {
		t.Helper()
		a.sendTooLate("TRYLOCK k PX 5000", meanwhile)
		equal(t, "re-entry", a.reply(), "(nil)")
	}
	tooLate(func() {})
	if ttl := srv.Client(t).PTTL(t.Context(), "k").Val(); ttl < 30*time.Second {
		t.Errorf("the hold is left with a lease of %v", ttl)
	}
	tooLate(func() { srv.Do(t, "DEL", "k") }) // as the short lease would
	equal(t, "push", a.push(), ">[lock-lost k :"+itoa(fence)+" gone]")
	a.want("UNLOCK k", lostLeaseReply)
}

// gated is a connection that may stand still.
type gated struct {
	net.Conn
	gate *sync.RWMutex
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Conn.Write(b)
}

// startGated runs an engine whose own connection stands still while the gate is locked.
func startGated(t *testing.T, srv *redistest.Server) (p *proxy, gate *sync.RWMutex) {
	t.Helper()
	gate = new(sync.RWMutex)
	p = startProxy(t, srv, func(o *Options) {
		o.Lease = time.Minute
		o.Redis = linkTo(t, redislink.Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
			return gated{nc, gate}, err
		}})
	})
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	return p, gate
}

func TestHoldIsNotGivenBackTwice(t *testing.T) {
	srv := redistest.Start(t)
	p, gate := startGated(t, srv)
	a := p.session(3)
	owner := p.ownerOf(a)
	a.fence("LOCK k")
	srv.Do(t, "HINCRBY", "k", owner, 1) // an acquire whose answer was lost
	gate.Lock()
	for _, holds := range []string{"3", "4"} {
		a.fence("LOCK k") // the next one waits for the give-back, but not for long
		equal(t, "holds", p.holds("k", owner), holds)
	}
	gate.Unlock()
	p.cleanedUp()
	p.eventuallyHeld("k", owner, "3")
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k", ":1")
}

func TestGrantThatIsBeingGivenBackIsNotTakenForANewOne(t *testing.T) {
	srv := redistest.Start(t)
	p, gate := startGated(t, srv)
	a := p.session(3)
	fence := a.fence("LOCK k PX 2000")
	srv.Do(t, "PEXPIRE", "k", 60000) // Redis judges later
	gate.Lock()
	a.push()
	a.want("UNLOCK k", lostLeaseReply)
	a.send("LOCK k PX 60000") // does not wait for long for what is being given back
	a.executed(2)
	gate.Unlock()
	if again := fenceIn(t, a.reply()); again <= fence {
		t.Errorf("fence %d for a lock that was lost with fence %d", again, fence)
	}
	p.cleanedUp()
	equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
	a.want("UNLOCK k", ":1")
}

func TestLostGrantIsNotTakenForANewOne(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a := p.session(2) // hears no pushes
	fence := a.fence("LOCK k PX 60000")
	p.e.mu.Lock()
	h := p.e.holds[holdKey{"k", p.ownerOf(a)}]
	told := p.e.loseLocked(h, ReasonForced, nil) // and Redis does not know yet
	p.e.mu.Unlock()
	p.e.tell(told)
	if again := a.fence("LOCK k"); again <= fence {
		t.Errorf("fence %d for a lock that was lost with fence %d", again, fence)
	}
	equal(t, "holds", p.holds("k", p.ownerOf(a)), "1")
	a.want("UNLOCK k", ":1")
}

func TestRestOfALostHoldIsGivenBackThoughTheAcquireFails(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(3)
	a.fence("LOCK k PX 2000")
	answer := a.Lane.HoldBack()
	a.send("EXTENDLOCK k PX 600000")
	a.executed(2)
	srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
	a.send("LOCK k PX 600000")
	a.push()
	answer()
	equal(t, "extend", a.reply(), lostLeaseReply)
	equal(t, "lock", a.reply()[:4], "-OOM")
	srv.Do(t, "CONFIG", "SET", "maxmemory", "0")
	p.eventuallyHeld("k", p.ownerOf(a), "")
}

func TestPlaceOfTheSameOwnerAtAnotherProxyIsAskedForAgain(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute })
	holder, a, b := p.session(2), p.session(2), q.session(2)
	holder.fence("LOCK k PX 60000")
	a.send("FAIRLOCK k OWNER me")
	a.awaitWaiting()
	b.send("FAIRLOCK k OWNER me") // by a client library that has reconnected
	b.awaitWaiting()
	a.hangUp()
	p.cleanedUp()
	holder.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
}

func TestLostGrantThatCannotBeGivenBackIsNotAskedForAgainAndAgain(t *testing.T) {
	srv := redistest.Start(t)
	srv.Do(t, "ACL", "SETUSER", "locker", "on", ">pw", "~*", "&*", "+@all")
	p := startProxy(t, srv, func(o *Options) {
		o.Lease, o.Redis = time.Minute, linkTo(t, redislink.Options{Addr: srv.Addr(), User: "locker", Password: "pw"})
	})
	a := p.session(2)
	a.fence("LOCK k PX 60000")
	p.e.mu.Lock()
	told := p.e.loseLocked(p.e.holds[holdKey{"k", p.ownerOf(a)}], ReasonForced, nil)
	p.e.mu.Unlock()
	p.e.tell(told)
	srv.Do(t, "ACL", "SETUSER", "locker", "-del")
	if got := a.do("LOCK k"); !strings.HasPrefix(got, "-") {
		t.Errorf("LOCK of a lost grant that may not be given back: %s", got)
	}
}
