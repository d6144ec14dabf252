package table

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// kind is a kind of lock for tests.
type kind struct{ reenters, shares bool }

func (k kind) Reenters() bool         { return k.reenters }
func (k kind) Shares() bool           { return k.shares }
func (k kind) HandsOver(to Kind) bool { return k == to && !k.shares }

// The kinds of these tests.
var (
	alone    Kind = kind{reenters: true}
	together Kind = kind{reenters: true, shares: true}
	permit   Kind = kind{shares: true}
)

// The ways to wait.
const plain, fair = false, true

// granted records a grant of the session's own owner.
func granted(t *testing.T, x *Table, s *Session, k Kind, fence int64) *Hold {
	t.Helper()
	g := Grant{By: s, Key: Key{Lock: "k", Owner: s.Name, Kind: k}, Fence: fence, Count: 1, SentAt: at(int(fence)), TTL: time.Minute, Grace: -1}
	h := x.record(&g)
	if h == nil || h.Fence != fence {
		t.Fatalf("grant %d: %v", fence, h)
	}
	return h
}

func TestAKindMayHaveSeveralGrantsOfOneOwner(t *testing.T) {
	x := New(Config{})
	s := &Session{Name: "s", Losses: &Losses{}}
	holds := []*Hold{granted(t, x, s, permit, 1), granted(t, x, s, permit, 2), granted(t, x, s, permit, 3)}
	for _, h := range holds {
		if got := x.HoldByFence("k", h.Fence); got != h || h.IsLost() {
			t.Fatalf("fence %d: %v", h.Fence, got)
		}
	}
	for _, h := range []*Hold{holds[2], holds[0], holds[1]} { // each is found by its owner until the last has gone
		if x.Hold(h.Key) != h {
			t.Fatalf("%v, want fence %d", x.Hold(h.Key), h.Fence)
		}
		x.Drop(h)
		if x.HoldByFence("k", h.Fence) != nil {
			t.Fatalf("fence %d is found", h.Fence)
		}
	}
	if x.Hold(holds[0].Key) != nil || len(x.holders.locks) != 0 || s.Holding() != 0 {
		t.Fatal("something is left")
	}
}

func TestOwnersOfOneFenceHaveHoldsOfTheirOwn(t *testing.T) {
	x := New(Config{})
	a, b, c := &Session{Name: "a", Losses: &Losses{}}, &Session{Name: "b", Losses: &Losses{}}, &Session{Name: "c", Losses: &Losses{}}
	last, first, second := granted(t, x, a, alone, 7), granted(t, x, b, alone, 5), granted(t, x, c, alone, 5)
	if x.Hold(first.Key) != first || x.Hold(second.Key) != second || x.HoldByFence("k", 5) != first {
		t.Fatal("one of the holds is not found")
	}
	x.Drop(first)
	if x.HoldByFence("k", 5) != second || x.HoldByFence("k", 7) != last {
		t.Fatal("one of the holds is not found when another one has ended")
	}
}

func TestAnOwnerHasOneHoldOfALockWhateverItsMode(t *testing.T) {
	x := New(Config{})
	s := &Session{Name: "s", Losses: &Losses{}}
	exclusive := granted(t, x, s, alone, 1)
	if x.Hold(Key{Lock: "k", Owner: "s", Kind: together}) != exclusive {
		t.Fatal("the hold is not found by the other mode")
	}
	another := granted(t, x, s, permit, 2)
	shared := granted(t, x, s, together, 3)
	if !exclusive.IsLost() || x.Hold(exclusive.Key) != shared || x.Hold(another.Key) != another {
		t.Fatal("a grant ends the older one of its owner, and no permit")
	}
	if x.Count(alone) != 0 || x.Count(together) != 1 {
		t.Fatalf("%d and %d holds", x.Count(alone), x.Count(together))
	}
}

func TestASharedGrantHasTheNextWaiterAsk(t *testing.T) {
	for _, way := range []bool{plain, fair} {
		for _, k := range []Kind{together, alone} {
			w := newWorld(t)
			w.holder = "x" // elsewhere
			first, second := w.ask(way, ""), w.ask(way, "")
			first.Kind, second.Kind = k, together
			w.settle()
			w.s.Wake("k")
			w.effects()
			if !slices.Equal(w.attempts, []*client{first}) {
				t.Fatalf("%d attempts", len(w.attempts))
			}
			w.attempts = nil
			w.s.Answered(&first.Waiter, Answer{Status: Held, TTL: time.Minute})
			w.effects()
			if asks := len(w.attempts) == 1 && w.attempts[0] == second; asks != (k == together) {
				t.Errorf("fair %t, %v: the next one asks %t", way, k, asks)
			}
		}
	}
}

// The next waiter may share the lock that the first one, which wanted it for itself, was waiting for.
func TestAWaiterThatLeavesLetsTheNextOfAnotherKindAsk(t *testing.T) {
	for _, k := range []Kind{together, alone} {
		w := newWorld(t)
		w.holder = "x" // elsewhere
		first, second := w.ask(plain, ""), w.ask(plain, "")
		second.Kind = k
		w.settle()
		w.attempts = nil
		w.s.TimedOut(&first.Waiter)
		w.effects()
		if asks := slices.Equal(w.attempts, []*client{second}); asks != (k == together) {
			t.Errorf("%v: the next one asks %t", k, asks)
		}
	}
}

func TestWaitersOfALockInRedissonsFormListenToItsChannel(t *testing.T) {
	w := newWorld(t)
	w.holder = "x" // elsewhere
	c := w.ask(plain, "")
	w.settle()
	const theirs = "redisson_rwlock:{k}"
	asks := func(cause string) {
		t.Helper()
		w.effects()
		if !slices.Equal(w.attempts, []*client{c}) {
			t.Fatalf("%s: the waiter does not ask", cause)
		}
		w.attempts = nil
		w.answer(c, Answer{Status: Busy, TTL: time.Minute, Form: script.RWLock})
	}
	w.s.Wake("k")
	asks("a message")
	if !slices.Contains(w.wanted, theirs) {
		t.Fatalf("wanted: %q", w.wanted)
	}
	w.s.Subscribed(theirs)
	asks("the confirmation")
	w.s.Published(theirs)
	asks("a message of Redisson's")
	w.s.TimedOut(&c.Waiter)
	w.effects()
	if refs := w.s.channels.byName[theirs].refs; refs != 0 {
		t.Errorf("%d listeners are left", refs)
	}
}

// Holders of permits hand them over at the same time, each to another waiter.
func TestHoldersOfPermitsOfferThemToOneWaiterEach(t *testing.T) {
	tokens := kind{} // neither reenters nor shares
	for _, way := range []bool{plain, fair} {
		w := newWorld(t)
		w.holder = "x" // elsewhere
		first, second := w.ask(way, ""), w.ask(way, "")
		first.Kind, second.Kind = tokens, tokens
		w.settle()
		for _, want := range []*client{first, second, nil} {
			p, f := w.s.Offer(Key{Lock: "k", Owner: "x", Kind: tokens}, Streak{}, start)
			got := p
			if way == fair {
				got = f
			}
			if want == nil && got != nil || want != nil && got != &want.Waiter {
				t.Errorf("fair %t: offered to %v, want %v", way, got, want)
			}
		}
	}
}

// Each release is about another grant of the session.
func TestAReleaseOfOneOfSeveralGrantsIsAboutTheOldestOfTheSession(t *testing.T) {
	tokens := kind{}
	x := New(Config{})
	a, b := &Session{Name: "a", Losses: &Losses{}}, &Session{Name: "b", Losses: &Losses{}}
	k := Key{Lock: "k", Owner: "job", Kind: tokens}
	var holds []*Hold
	for i, s := range []*Session{a, b, b, a, b} {
		h := x.record(&Grant{By: s, Key: k, Fence: int64(i + 1), Count: 1, SentAt: at(i), TTL: time.Minute, Grace: -1})
		holds = append(holds, h)
	}
	if h := x.Meant(a, k, 3); h != holds[2] {
		t.Errorf("%v has the fence 3", h)
	}
	if h := x.Meant(a, k, 7); h != nil {
		t.Errorf("%v has the fence 7", h)
	}
	for _, c := range []struct {
		by   *Session
		want int // its place in holds
	}{{b, 1}, {a, 0}, {b, 2}, {a, 3}} {
		if r := x.Release(c.by, k, 0); r.Hold != holds[c.want] || r.Fence != holds[c.want].Fence {
			t.Errorf("a release of session %s is about %v, want fence %d", c.by.Name, r.Hold, holds[c.want].Fence)
		}
	}
	if r := x.Release(a, k, 0); r.Hold != nil {
		t.Errorf("a third release of one session is about %v", r.Hold)
	}
}

// Whatever happens to the grants of an owner, a release finds one of the session that no session has begun to release.
func TestAReleaseFindsAGrantThatIsNotReleased(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook()
		sessions := []*Session{session("a"), session("b"), session("c")}
		k := Key{Lock: "k", Owner: "job", Kind: kind{}}
		var releases []Release
		fence := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			s := rapid.SampledFrom(sessions).Draw(t, "session")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				fence++
				b.record(&Grant{By: s, Key: k, Fence: fence, Count: 1, SentAt: at(int(fence)), TTL: time.Minute, Grace: -1})
			case 2:
				releases = append(releases, b.Release(s, k, rapid.Int64Range(0, fence).Draw(t, "named")))
			case 3:
				if len(releases) > 0 {
					status := rapid.SampledFrom([]Status{Failed, Freed, NotHolder}).Draw(t, "status")
					b.Released(&releases[0], HoldAnswer{Status: status, Fence: releases[0].Fence})
					releases = releases[1:]
				}
			case 4:
				if h := b.Meant(s, k, 0); h != nil && rapid.Bool().Draw(t, "ends") {
					b.EndPart(h, h.Parts()[0].Session)
				}
			}
			b.settle(t)
			own := 0
			for _, h := range b.Holds() {
				if h.releasing == 0 && h.IsHeldBy(s) {
					own++
				}
			}
			if h := b.Meant(s, k, 0); (h != nil) != (own > 0) || h != nil && (h.releasing > 0 || !h.IsHeldBy(s)) {
				t.Fatalf("a release is about %v, of %d of the session", h, own)
			}
		}
	})
}

func TestAHandOverGoesToAKindThatItsScriptCanGrant(t *testing.T) {
	for _, k := range []Kind{together, alone} {
		w := heldWorld(t)
		w.ask(plain, "").Kind = k
		w.ask(fair, "").Kind = k
		w.settle()
		p, f := w.s.Offer(Key{Lock: "k", Owner: "o0", Kind: alone}, Streak{}, start)
		if got := p != nil && f != nil; got != (k == alone) || (p != nil) != (f != nil) {
			t.Errorf("%v: offered %v, %v", k, p, f)
		}
	}
}
