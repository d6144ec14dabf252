package lockcmds

import (
	"testing"
	"time"

	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/redistest"
)

// The outcome of a command is not known, because its connection broke.

const inDoubtReply = "-INDOUBT sent, but no answer came"

// breaks has commands fail that are sent from now on: Redis never sees them.
func (s *session) breaks() { _ = s.Lane.Conn.Close() }

func TestAcquireInDoubtBehindARelease(t *testing.T) {
	srv := redistest.Start(t)
	for _, verb := range []string{"LOCK", "TRYLOCK"} {
		p := startProxy(t, srv, nil)
		a, b := p.session(2), p.session(2)
		first := a.fence("LOCK k")
		answer := a.Lane.HoldBack()
		a.send("UNLOCK k")
		a.Lane.Fail(ErrInDoubt)
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

func TestAcquireAndReleaseInDoubtMakeNoDifference(t *testing.T) {
	t.Parallel() // it takes doubtLimit
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a := p.session(2)
	a.fence("LOCK k")
	a.fence("LOCK k")
	a.Lane.Fail(ErrInDoubt)
	a.want("UNLOCK k", inDoubtReply)
	a.want("TRYLOCK k", inDoubtReply)
}

func TestAcquireInDoubtOfASharedOwnerIsNotClaimed(t *testing.T) {
	t.Parallel() // it takes doubtLimit
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k OWNER me")
	b.fence("LOCK k OWNER me")
	a.Lane.Fail(ErrInDoubt)
	a.want("TRYLOCK k OWNER me", inDoubtReply)
}

func TestLossBehindAReleaseInDoubtIsTold(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 3 * time.Second })
	a := p.session(3)
	a.fence("LOCK k")
	fence := itoa(a.fence("LOCK k"))
	a.Lane.Fail(ErrInDoubt)
	a.want("UNLOCK k", inDoubtReply)
	a.Lane.Fail(nil)
	srv.Do(t, "DEL", "k")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" gone]")
	a.want("UNLOCK k", lostLeaseReply)
}

func TestWaiterInDoubtIsNotToldThatNothingHappened(t *testing.T) {
	srv := redistest.Start(t)
	for name, end := range map[string]func(p *proxy){
		"drain":   func(p *proxy) { p.e.Drain() },
		"refusal": func(p *proxy) { srv.Do(t, "ACL", "SETUSER", "locker", "-evalsha", "-eval") },
	} {
		t.Run(name, func(t *testing.T) {
			srv.Do(t, "ACL", "SETUSER", "locker", "reset", "on", ">pw", "~*", "&*", "+@all")
			p := startProxy(t, srv, func(o *Options) {
				o.Redis, o.Lease = linkTo(t, redislink.Options{Addr: srv.Addr(), User: "locker", Password: "pw"}), time.Minute
			})
			a, b := p.session(2), p.session(2)
			key := "k:" + name
			a.fence("LOCK " + key)
			b.send("LOCK " + key)
			p.awaitAttempt(key)
			a.Lane.Fail(ErrInDoubt)
			answer := a.Lane.HoldBack()
			a.send("UNLOCK " + key)
			a.executed(2)
			end(p)
			answer()
			equal(t, "unlock", a.reply(), inDoubtReply)
			equal(t, "waiter", b.reply(), inDoubtReply)
		})
	}
}

func TestExtensionInDoubtAfterTheDeadlineLeavesNothing(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(3)
	a.fence("LOCK k PX 2000")
	a.Lane.Fail(ErrInDoubt)
	answer := a.Lane.HoldBack()
	a.send("EXTENDLOCK k PX 3600000")
	a.push()
	answer()
	equal(t, "extend", a.reply(), inDoubtReply)
	p.eventuallyHeld("k", p.ownerOf(a), "")
}

func TestAcquireThatRedisNeverSawIsMadeAgain(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b := p.session(2), p.session(2)
	a.breaks()
	a.fence("TRYLOCK k")
	fence := a.fence("LOCK own")
	equal(t, "re-entry", a.fence("TRYLOCK own"), fence)
	equal(t, "holds", p.holds("own", p.ownerOf(a)), "2")
	b.breaks()
	b.want("TRYLOCK k", "(nil)")
	b.want("FAIRLOCK k WAIT 0", "(nil)")
}

func TestAcquireThatRedisNeverSawIsMadeAgainAfterItsWait(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	a := p.session(2)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		srv.Pause()
		a.breaks()
		a.send(verb + " k WAIT 20")
		a.quiet(50 * time.Millisecond)
		srv.Continue()
		fenceIn(t, a.reply())
		if err := srv.Client(t).Del(t.Context(), "k").Err(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "waiters left", srv.Client(t).Exists(t.Context(), "redisson_lock_queue:{k}").Val(), int64(0))
}

func TestLookingIntoAReentryLeavesTheLeaseOfTheHold(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	a.fence("LOCK k PX 60000")
	p.e.mu.Lock()
	h := p.e.holds[holdKey{"k", p.ownerOf(a)}]
	w := &waiter{
		Waiter: queue.Waiter{Owner: h.owner}, c: p.e.clients[a.ID], key: "k", lease: time.Second, paused: h, before: before{fence: h.fence, holds: 1},
	}
	p.e.mu.Unlock()
	if got, err := p.e.ask(t.Context(), w); err != nil || got.Granted {
		t.Fatal(got, err)
	}
	if ttl := srv.Client(t).PTTL(t.Context(), "k").Val(); ttl < 30*time.Second {
		t.Errorf("the hold is left with a lease of %v", ttl)
	}
}
