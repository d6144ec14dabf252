package pins

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

var errAway = errors.New("the server is away")

// away is the topology of servers that are looked for until it is closed.
type away chan struct{}

func (a away) Resolve(topology.Node) (topology.Place, error) {
	<-a
	return topology.Place{}, errAway
}

func (away) Doubt(string) {}

const wait = time.Second // of tests for a pin

// bench has pins that connect until the test ends. A test runs it in a bubble.
type bench struct {
	*testing.T
	*Pins

	mu  sync.Mutex
	got []string // what Await has delivered; guarded by mu
}

func inBubble(t *testing.T, l Limits, test func(b *bench)) {
	t.Helper()
	l.Wait, l.LoginWait = wait, wait
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		stop := make(chan struct{})
		dialer := dial.New(dial.Options{Resolver: away(stop), Timeout: time.Second, Wait: -1, Spawn: running.Go, Stop: stop})
		b := &bench{T: t, Pins: New(Options{
			Dialer: dialer, Own: func(dial.Identity) bool { return false }, Spawn: running.Go, Limits: l,
		})}
		test(b)
		b.Close()
		close(stop)
		running.Wait()
	})
}

// of is a request of an owner for an identity.
func of(owner, user string) Ask {
	return Ask{Owner: owner, ID: dial.Identity{User: user, Proto: 2}, At: "node", Patient: true}
}

func login(owner string) Ask {
	a := of(owner, "u")
	a.Login = true
	return a
}

func (b *bench) acquire(a Ask) *Pin {
	b.Helper()
	p := b.Acquire(a)
	if p == nil {
		b.Fatalf("%s gets no pin", a.Owner)
	}
	return p
}

func (b *bench) refused(a Ask) {
	b.Helper()
	if b.Acquire(a) != nil {
		b.Fatalf("%s gets a pin", a.Owner)
	}
}

// await notes the outcome under the owner's name. A pin that is delivered is released at once.
func (b *bench) await(a Ask) (withdraw func() bool) {
	return b.Await(a, func(p *Pin, err error) {
		outcome := a.Owner
		if err != nil {
			outcome += ": " + err.Error()
		}
		b.mu.Lock()
		b.got = append(b.got, outcome)
		b.mu.Unlock()
		if p != nil {
			p.Release()
		}
	})
}

func (b *bench) delivered(want ...string) {
	b.Helper()
	synctest.Wait()
	if !slices.Equal(b.got, want) {
		b.Errorf("delivered: %q, want %q", b.got, want)
	}
	b.got = nil
}

func (b *bench) counts(open, idle int) {
	b.Helper()
	if work, _ := b.Status(); work.Open != open || work.Idle != idle {
		b.Errorf("%d pins are open and %d idle, want %d and %d", work.Open, work.Idle, open, idle)
	}
}

// ended reports whether a pin's connection is to end.
func ended(p *Pin) bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func TestAPinBelongsToOneSessionAtATime(t *testing.T) {
	inBubble(t, Limits{Max: 3}, func(b *bench) {
		first := b.acquire(of("a", "u"))
		if second := b.acquire(of("a", "u")); second == first {
			t.Error("a pin was given to two sessions")
		}
		first.Release()
		b.counts(2, 1)
		if other := b.acquire(of("a", "v")); other == first {
			t.Error("a pin was given to another identity")
		}
		if again := b.acquire(of("a", "u")); again != first {
			t.Error("an idle pin of the identity was not used")
		}
		b.refused(of("a", "u"))
	})
}

func TestAnOwnerGetsItsShare(t *testing.T) {
	inBubble(t, Limits{Max: 4}, func(b *bench) {
		b.acquire(of("a", "u"))
		b.acquire(of("a", "u"))
		p := b.acquire(of("a", "u"))
		b.refused(of("a", "u"))
		b.await(of("a", "u"))
		q := b.acquire(of("b", "u"))
		time.Sleep(wait)
		b.delivered("a: " + ErrNone.Error())
		q.Release()
		b.await(of("a", "u"))
		time.Sleep(wait)
		b.delivered("a: " + ErrShare.Error())
		p.Discard()
		b.acquire(of("a", "u"))
	})
}

func TestAddressesTakeTurns(t *testing.T) {
	inBubble(t, Limits{Max: 1}, func(b *bench) {
		p := b.acquire(of("a", "u"))
		b.await(of("a", "u"))
		b.await(of("a", "u"))
		withdraw := b.await(of("c", "u"))
		b.await(of("b", "u"))
		if !withdraw() {
			t.Error("a request that waits was not withdrawn")
		}
		b.delivered()
		p.Release()
		b.delivered("a", "b", "a")
		if withdraw() {
			t.Error("a request was withdrawn twice")
		}
		time.Sleep(2 * wait)
		b.delivered() // each once
	})
}

// Work never keeps a client from logging in.
func TestLoginsHaveAPoolOfTheirOwn(t *testing.T) {
	inBubble(t, Limits{Max: 1, MaxLogins: 1}, func(b *bench) {
		b.acquire(of("a", "u"))
		p := b.acquire(login("a"))
		b.refused(login("a"))
		b.refused(of("b", "u"))
		p.Discard()
		b.acquire(login("b"))
		if _, logins := b.Status(); logins.Open != 1 {
			t.Errorf("%d connections for logins", logins.Open)
		}
	})
}

// A pin for a login that its session keeps takes a place of work, and leaves its own to the next login.
func TestAPinForALoginMayBeKept(t *testing.T) {
	inBubble(t, Limits{Max: 1, MaxLogins: 1}, func(b *bench) {
		idle := b.acquire(of("b", "u"))
		idle.Release()
		kept := b.acquire(login("a"))
		b.await(login("b"))
		for range 2 {
			if !kept.Keep() {
				t.Fatal("it is refused")
			}
		}
		b.delivered("b")
		if !ended(idle) {
			t.Error("two pins for work are open")
		}
		b.counts(1, 0)
		b.refused(of("b", "u"))
		kept.Release()
		b.counts(1, 1)
		b.acquire(of("b", "u"))
		if b.acquire(login("a")).Keep() {
			t.Error("there is no place")
		}
	})
}

// An owner that uses much loses its own idle pins first.
func TestAnIdlePinMakesWay(t *testing.T) {
	inBubble(t, Limits{Max: 2}, func(b *bench) {
		other, own := b.acquire(of("b", "u")), b.acquire(of("a", "u"))
		other.Release()
		own.Release()
		b.counts(2, 2)
		b.acquire(of("a", "v"))
		b.counts(2, 1)
		if !ended(own) || ended(other) {
			t.Error("another owner's pin has made way")
		}
		b.acquire(of("a", "w"))
		if !ended(other) {
			t.Error("more connections than places")
		}
		b.counts(2, 0)
	})
}

func TestASparePinIsConnectedAheadOfNeed(t *testing.T) {
	inBubble(t, Limits{Max: 3}, func(b *bench) {
		urgent, patient := of("a", "u"), of("a", "u")
		urgent.Patient = false
		b.acquire(urgent)
		b.counts(2, 1)
		b.Spare(dial.Target{At: urgent.At, ID: urgent.ID}, "a")
		b.counts(2, 1) // one is enough
		spare := b.work.idle.Values()[0]
		b.acquire(patient)
		b.counts(3, 1) // the spare one is left to other requests
		if b.acquire(urgent) != spare {
			t.Error("the spare pin was not used")
		}
		b.counts(3, 0)
	})
	inBubble(t, Limits{Max: 4}, func(b *bench) {
		p, q := b.acquire(of("a", "u")), b.acquire(of("a", "u"))
		p.Release()
		q.Release()
		if b.acquire(of("a", "u")) != q {
			t.Error("of two idle pins one is spare, and the latest was not used")
		}
	})
	inBubble(t, Limits{Max: 4}, func(b *bench) {
		urgent := of("a", "u")
		urgent.Patient = false
		for range 3 {
			b.acquire(urgent)
		}
		b.counts(3, 0) // a spare one would be beyond the share
	})
}

func TestSmallerLimitsCloseIdlePins(t *testing.T) {
	inBubble(t, Limits{Max: 5}, func(b *bench) {
		var all []*Pin
		for range 4 {
			all = append(all, b.acquire(of("a", "u")))
		}
		all[0].Release()
		all[1].Release()
		b.Change(Limits{Max: 1, Wait: wait, LoginWait: wait})
		b.counts(2, 0)
		if ended(all[2]) || ended(all[3]) {
			t.Error("a session has lost its pin")
		}
		all[2].Release()
		b.counts(1, 0)
		all[3].Release()
		b.counts(1, 1)
		p := b.acquire(of("a", "u"))
		b.await(of("b", "u"))
		b.delivered()
		b.Change(Limits{Max: 2, Wait: wait, LoginWait: wait})
		b.delivered("b")
		p.Discard()
	})
}

// An owner's idle pins count against its share.
func TestTheOldestIdlePinBeyondTheShareIsClosed(t *testing.T) {
	inBubble(t, Limits{Max: 5}, func(b *bench) {
		p, q := b.acquire(of("a", "u")), b.acquire(of("a", "u"))
		b.acquire(of("a", "u"))
		b.acquire(of("a", "u"))
		p.Release()
		b.acquire(of("a", "v"))
		q.Release()
		b.counts(4, 1)
		if !ended(p) || ended(q) {
			t.Error("the oldest is not the one that was closed")
		}
		b.Change(Limits{Max: 4, Wait: wait, LoginWait: wait})
		b.counts(3, 0)
	})
}

func TestAPinWhoseNameCannotBeRemovedIsClosed(t *testing.T) {
	inBubble(t, Limits{Max: 1}, func(b *bench) {
		p := b.acquire(of("a", "u"))
		p.Named("by HELLO", false)
		p.Release()
		b.counts(0, 0)
		p = b.acquire(of("a", "u"))
		p.Named("by command", true)
		p.Release()
		b.counts(1, 1)
		p = b.acquire(of("a", "u"))
		p.CloseWrite()
		p.Release()
		b.counts(0, 0)
	})
}

// A RESET that removes the credentials of a pin may be on its way.
func TestNoPinOfASessionReturnsWhenTheDoorIsShut(t *testing.T) {
	inBubble(t, Limits{Max: 5}, func(b *bench) {
		bare, user := b.acquire(of("a", "")), b.acquire(of("a", "u"))
		idleBare, idleUser := b.acquire(of("a", "")), b.acquire(of("a", "u"))
		idleBare.Release()
		idleUser.Release()
		b.DropBare()
		b.counts(3, 1)
		if !ended(idleBare) || ended(idleUser) || ended(bare) || ended(user) {
			t.Error("another pin than the idle one without credentials was closed")
		}
		bare.Release()
		user.Release()
		b.counts(1, 1)
	})
}

func TestTrimLeavesOneOfEachIdentityInUse(t *testing.T) {
	inBubble(t, Limits{Max: 5, MaxLogins: 2}, func(b *bench) {
		begin := time.Now()
		pins := []*Pin{b.acquire(of("a", "u")), b.acquire(of("a", "u")), b.acquire(of("a", "v")), b.acquire(login("a"))}
		for _, p := range pins {
			p.Release()
		}
		inUse := map[dial.Target]bool{{At: "node", ID: of("a", "u").ID}: true}
		b.Trim(begin, inUse)
		b.counts(3, 3)
		b.Trim(begin.Add(1), inUse)
		b.counts(1, 1)
		if _, logins := b.Status(); logins.Open != 0 {
			t.Error("an idle login stays")
		}
		b.Trim(begin.Add(1), nil)
		b.counts(0, 0)
	})
}

func TestPinsToAServerThatIsGoneEnd(t *testing.T) {
	gone := func(at topology.Node) bool { return at == "node" }
	elsewhere := of("a", "u")
	elsewhere.At = "other"
	inBubble(t, Limits{Max: 3}, func(b *bench) {
		idle, lent, stays := b.acquire(of("a", "u")), b.acquire(of("a", "u")), b.acquire(elsewhere)
		idle.Release()
		if left := b.DropAt(gone); len(left) != 1 || left[0] != "node" {
			b.Errorf("pins are lent at %v", left)
		}
		if !ended(idle) || ended(lent) {
			b.Error("the idle pins end at once, and others after their replies")
		}
		b.EndAt("node", false)
		if !ended(lent) || ended(stays) {
			b.Error("the pins to the server that is gone end, and no others")
		}
		stays.Release()
		elsewhere.Patient = false
		if b.acquire(elsewhere) != stays {
			b.Error("a pin to another server serves no further session")
		}
	})
	inBubble(t, Limits{Max: 2}, func(b *bench) {
		p := b.acquire(of("a", "u"))
		b.DropAt(gone)
		if b.EndAt("node", true); ended(p) {
			b.Error("a pin to a server that is alive ends with nothing outstanding")
		}
		p.Release()
		b.counts(0, 0) // no other session gets it
	})
}

func TestAClosedPoolServesNoSession(t *testing.T) {
	inBubble(t, Limits{Max: 2}, func(b *bench) {
		p, q := b.acquire(of("a", "u")), b.acquire(of("a", "u"))
		p.Release()
		b.await(of("b", "u"))
		b.Close()
		b.refused(of("a", "u"))
		b.counts(1, 0)
		b.got = nil
		q.Release()
		b.counts(0, 0)
	})
}

// An idle pin to the old address is not used again, even if its connection has not ended yet.
func TestAnIdlePinIsNotUsedWhenItsServerHasMoved(t *testing.T) {
	primary := topology.NewPrimary()
	primary.Publish(redistest.Start(t).Addr())
	var running sync.WaitGroup
	stop := make(chan struct{})
	ps := New(Options{
		Dialer: dial.New(dial.Options{Resolver: primary, Timeout: 20 * time.Second, Wait: -1, Spawn: running.Go, Stop: stop}),
		Own:    func(dial.Identity) bool { return false }, Spawn: running.Go, Limits: Limits{Max: 1, MaxLogins: 1},
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() {
		close(stop)
		ps.Close()
	})
	a := of("a", "")
	p := ps.Acquire(a)
	defer p.Discard()
	redistest.Eventually(t, 10*time.Second, "the pin is connected", p.Connected)
	p.Release()
	if ps.Acquire(a) != p {
		t.Error("an idle pin is not used again")
	}
	p.Release()
	primary.Publish(redistest.Start(t).Addr())
	next := ps.Acquire(a)
	defer next.Discard()
	if next == p || !ended(p) {
		t.Error("a session gets a connection to the old address")
	}
}
