package table

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"pgregory.net/rapid"
)

var start = time.Unix(1000, 0)

// at is the instant so many seconds after the start.
func at(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

// book is a table with the leases as its effects make them.
type book struct {
	*Table

	paused  map[*Hold]int // pauses of the leases that are watched
	tracked []*Hold
	told    []*Loss

	shortened map[*Hold]bool
}

func newBook() *book {
	return &book{Table: New(Config{}), paused: map[*Hold]int{}, shortened: map[*Hold]bool{}}
}

func session(name string) *Session {
	return &Session{Name: name, Losses: &Losses{}}
}

// settle carries out the effects, and returns the losses that are told.
func (b *book) settle(t interface{ Fatalf(string, ...any) }) (told int) {
	due := false
	for _, f := range b.Effects() {
		n, watched := b.paused[f.Hold]
		switch f.Op {
		case Track:
			if watched {
				t.Fatalf("%v is watched twice", f.Hold.Key)
			}
			b.paused[f.Hold] = 0
			b.tracked = append(b.tracked, f.Hold)
		case Pause:
			b.paused[f.Hold] = n + 1
		case Resume, Continue:
			if n < 1 {
				t.Fatalf("%v goes on without a pause", f.Hold.Key)
			}
			b.paused[f.Hold] = n - 1
		case Shorten:
			if !watched {
				t.Fatalf("%v is shortened, and not watched", f.Hold.Key)
			}
			b.shortened[f.Hold] = true
		case Forget:
			delete(b.paused, f.Hold)
		case Tell:
			told++
			b.told = append(b.told, f.Loss)
		case Suspect:
			due = true
		default:
			t.Fatalf("effect %d is about no hold", f.Op)
		}
	}
	if due { // no message explains the loss
		b.SuspectsDue()
		told += b.settle(t)
	}
	if told > 1 {
		t.Fatalf("one event tells of %d losses", told)
	}
	return told
}

func (b *book) grant(s *Session, owner string, fence, count int64, sent int) *Hold {
	h := b.record(&Grant{
		By: s, Key: Key{Lock: "k", Owner: owner, Kind: alone}, Fence: fence, Count: count, SentAt: at(sent), TTL: time.Minute, Grace: -1,
	})
	return h
}

func TestReleasedByStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		count  int64 // holds before
		fence  int64 // of the answer; the grant's is 5
		answer HoldAnswer
		want   Reply
		held   bool // afterwards
	}{
		{"the last", 1, 5, HoldAnswer{Status: Freed}, Yes, false},
		{"a release of a newer grant", 1, 6, HoldAnswer{Status: Freed}, Yes, false},
		{"a release of an older grant", 1, 4, HoldAnswer{Status: Freed}, Yes, false},
		{"one of two", 2, 5, HoldAnswer{Status: Held, Holds: 1}, Left, true},
		{"refused", 1, 0, HoldAnswer{Status: Failed}, Failure, true},
		{"not answered", 1, 0, HoldAnswer{Status: InDoubt}, Failure, false},
		{"one of two, not answered", 2, 0, HoldAnswer{Status: InDoubt}, Failure, true},
		{"not held", 1, 0, HoldAnswer{Status: NotHolder}, LostLease, false},
		{"not held, though two holds were left", 2, 0, HoldAnswer{Status: NotHolder}, LostLease, false},
		{"another grant of a private owner", 2, 6, HoldAnswer{Status: OtherGrant}, LostLease, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s := newBook(), session("s")
			h := b.grant(s, "s", 5, c.count, 1)
			b.settle(t)
			r := b.Release(s, h.Key, 0)
			if !r.Lowered || r.Fence != 5 || r.Holds != c.count-1 {
				t.Errorf("the release is sent as %+v", r)
			}
			c.answer.Fence, c.answer.SentAt = c.fence, at(2)
			if got := b.Released(&r, c.answer); got != c.want {
				t.Errorf("reply %d, want %d", got, c.want)
			}
			b.settle(t)
			if got := b.Hold(h.Key) != nil; got != c.held || s.Has(h) != c.held || len(b.Holds()) != len(b.paused) {
				t.Errorf("held: %v, by the session: %v, %d holds, %d leases", got, s.Has(h), len(b.Holds()), len(b.paused))
			}
			if n := b.paused[h]; n != 0 {
				t.Errorf("the lease is paused %d times", n)
			}
			if c.answer.Status == Failed && h.PartOf(s).Holds != c.count { // it has not happened: the session may release again
				t.Errorf("%d holds are left", h.PartOf(s).Holds)
			}
		})
	}
}

// The effects of a hold that has ended keep nothing of it in memory.
func TestEffectsKeepNoHoldAlive(t *testing.T) {
	l := New(Config{})
	s := session("s")
	h := l.record(&Grant{
		By: s, Key: Key{Lock: "k", Owner: "s", Kind: alone}, Fence: 5, Count: 1, SentAt: at(1), TTL: time.Minute, Grace: -1,
	})
	l.Done(l.Effects())
	r := l.Release(s, h.Key, 0)
	l.Released(&r, HoldAnswer{Status: Freed, Fence: 5, SentAt: at(2)})
	l.Done(l.Effects())
	gone := weak.Make(h)
	h, r = nil, Release{}
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the hold is still in memory")
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(s)
}

// A command in doubt makes the lease no longer.
func TestTheShorterLeaseOfACommandInDoubtCounts(t *testing.T) {
	for _, c := range []struct {
		name, owner string
		ttl         time.Duration
		sent        int
		want        time.Duration
	}{
		{"a shorter one", "s", time.Second, 3, time.Second},
		{"a longer one", "s", time.Hour, 3, time.Minute},
		{"behind a call of another session of the owner", "o", time.Second, 1, time.Second},
	} {
		for _, extension := range []bool{false, true} {
			b, s := newBook(), session("s")
			h := b.grant(s, c.owner, 5, 1, 2)
			b.settle(t)
			if extension {
				b.paused[h]++
				b.Extended(s, h.Key, h, c.ttl, HoldAnswer{Status: InDoubt, SentAt: at(c.sent)})
			} else {
				b.InDoubt(h, c.ttl, at(c.sent))
			}
			b.settle(t)
			if want := c.want < time.Minute; h.TTL != c.want || b.shortened[h] != want || b.paused[h] != 0 {
				t.Errorf("%s: lease %v, shortened: %v, %d pauses", c.name, h.TTL, b.shortened[h], b.paused[h])
			}
			b.Drop(h)
			b.settle(t)
			b.InDoubt(h, time.Millisecond, at(9)) // it has ended
			b.InDoubt(nil, time.Millisecond, at(9))
			b.settle(t)
			if h.TTL != c.want {
				t.Errorf("%s: a hold that has ended is changed", c.name)
			}
		}
	}
}

// A release that names another fence may be the first command that finds the loss. It is for another grant, so the next
// command tells of it.
func TestALossThatAReleaseOfAnotherGrantFindsIsTold(t *testing.T) {
	b, s := newBook(), session("s")
	h := b.grant(s, "s", 5, 1, 1)
	r := b.Release(s, h.Key, 4)
	if got := b.Released(&r, HoldAnswer{Status: NotHolder}); got != NotHeld {
		t.Errorf("the reply is %d", got)
	}
	if b.settle(t) != 1 || len(b.told[0].To) != 1 || !b.KnowsLoss(s, h.Key, 0) || b.KnowsLoss(s, h.Key, 0) {
		t.Errorf("told %v", b.told)
	}
}

// Until a loss is told, it may be a release through another proxy, and what was lost is not another grant: Redis says
// what the owner holds.
func TestALossIsKnownOfItsGrantWhenItIsTold(t *testing.T) {
	b, s := newBook(), session("s")
	h := b.grant(s, "o", 5, 1, 1)
	b.Lost(h, ReasonGone, false, nil)
	if b.KnowsLossOf(s, h.Key, 0) || b.KnowsLossOf(s, h.Key, 5) {
		t.Error("known before it is told")
	}
	b.SuspectsDue()
	if b.KnowsLossOf(s, h.Key, 6) || !b.KnowsLossOf(s, h.Key, 5) || b.KnowsLossOf(s, h.Key, 5) {
		t.Error("not known of its grant, once")
	}
}

// A loss may be told while a release is on its way. If the reply to it tells the loss, too, the next command is about
// what comes after it.
func TestAReplyThatTellsALossIsTheLastWord(t *testing.T) {
	for _, answer := range []HoldAnswer{{Status: Failed}, {Status: Held, Fence: 5, Holds: 1}} {
		b, s := newBook(), session("s")
		h := b.grant(s, "s", 5, 2, 1)
		r := b.Release(s, h.Key, 0)
		b.Lost(h, ReasonGone, true, nil)
		if got := b.Released(&r, answer); got != LostLease || b.KnowsLoss(s, h.Key, 0) {
			t.Errorf("%v: the reply is %d", answer, got)
		}
	}
}

// A release of another session that is on its way may have ended the hold: that it has ended is no loss then.
func TestNotHeldBesideAnotherReleaseIsNoLoss(t *testing.T) {
	for _, beside := range []bool{false, true} {
		b, s, other := newBook(), session("s"), session("other")
		h := b.grant(s, "shared", 5, 1, 1)
		first := b.Release(s, h.Key, 0)
		want, told := LostLease, 1
		if beside {
			b.Release(other, h.Key, 0)
			want, told = NotHeld, 0
		}
		if got := b.Released(&first, HoldAnswer{Status: NotHolder}); got != want || b.settle(t) != told || len(b.Holds()) != 0 {
			t.Errorf("beside another release: %v; the reply is %d, %d losses are told, %d holds are left", beside, got, len(b.told), len(b.Holds()))
		}
	}
}

// The end of a grant by its handle is for all its holds, and no loss: also if the first word of it is another answer.
func TestAGrantEndsByItsHandle(t *testing.T) {
	for _, c := range []struct {
		name string
		over bool // the answer
		lost bool // Redis has said before that the grant is over
		told int
		held bool
	}{
		{"ended", true, false, 0, false},
		{"not ended", false, false, 0, true},
		{"ended, and another answer came first", true, true, 0, false},
		{"it was over before", false, true, 1, false},
	} {
		b, s := newBook(), session("s")
		h := b.grant(s, "s", 5, 2, 1)
		if b.Ending("k", 4) != nil || b.Ending("other", 5) != nil || b.Ending("k", 5) != h {
			t.Fatal("the fence names another grant")
		}
		if b.settle(t); b.paused[h] != 1 {
			t.Errorf("%s: paused %d times", c.name, b.paused[h])
		}
		if c.lost {
			b.grant(s, "s", 6, 1, 2)
			if b.settle(t) != 0 {
				t.Errorf("%s: told while the end is on its way", c.name)
			}
		}
		b.Ended(h, c.over)
		told := b.settle(t)
		if told != c.told || b.Knows(h) != c.held || s.Has(h) != c.held || b.paused[h] != 0 || b.KnowsLoss(s, h.Key, 0) {
			t.Errorf("%s: %d losses are told, held: %v, paused %d times", c.name, told, b.Knows(h), b.paused[h])
		}
		b.Ended(nil, c.over)
	}
}

func TestAnOlderAnswerChangesNothing(t *testing.T) {
	b, s, o := newBook(), session("s"), session("o")
	h := b.grant(s, "shared", 5, 2, 3)
	b.grant(o, "shared", 5, 1, 2)
	b.settle(t)
	if h.Count != 2 || len(h.Parts()) != 2 || b.paused[h] != 0 {
		t.Errorf("%d holds of %d sessions, paused %d times", h.Count, len(h.Parts()), b.paused[h])
	}
	if older := b.grant(o, "shared", 4, 1, 4); older != nil {
		t.Errorf("a grant with an older fence has become %+v", older)
	}
}

func TestALaterGrantTellsThatTheOlderIsLost(t *testing.T) {
	b, s, o := newBook(), session("s"), session("o")
	old := b.grant(s, "shared", 5, 1, 1)
	b.grant(o, "shared", 6, 1, 2)
	if b.settle(t) != 1 || b.told[0].Fence != 5 || len(b.told[0].To) != 1 || b.told[0].To[0] != s || s.Has(old) {
		t.Errorf("told: %+v", b.told)
	}
	k := Key{Lock: "k", Owner: "shared", Kind: alone}
	if b.KnowsLoss(s, k, 0) {
		t.Error("the owner holds the lock again")
	}
}

// The call of a named owner is for the grant that the owner has, which other sessions may have made.
func TestACommandOfANamedOwnerFindsALaterGrant(t *testing.T) {
	held, freed := HoldAnswer{Status: Held, Fence: 6, Holds: 1, SentAt: at(3)}, HoldAnswer{Status: Freed, Fence: 6}
	for name, command := range map[string]func(b *book, s *Session, h *Hold) Reply{
		"EXTENDLOCK": func(b *book, s *Session, h *Hold) Reply {
			b.paused[h]++ // by the caller
			return b.Extended(s, h.Key, h, time.Minute, held)
		},
		"UNLOCK": func(b *book, s *Session, h *Hold) Reply {
			r := b.Release(s, h.Key, 0)
			if r.Fence != 0 {
				t.Errorf("it is for the grant %d", r.Fence)
			}
			return b.Released(&r, freed)
		},
		"UNLOCK of one of two": func(b *book, s *Session, h *Hold) Reply {
			r := b.Release(s, h.Key, 0)
			return b.Released(&r, held)
		},
	} {
		b, s := newBook(), session("s")
		h := b.grant(s, "shared", 5, 1, 1)
		b.settle(t)
		want := Yes
		if strings.HasSuffix(name, "two") {
			want = Left
		}
		if got := command(b, s, h); got != want {
			t.Errorf("%s: reply %d, want %d", name, got, want)
		}
		if told := b.settle(t); told != 0 || len(b.Holds()) != 0 {
			t.Errorf("%s: %d holds, %d losses", name, len(b.Holds()), told)
		}
	}
}

// A server that does not know the latest grant has become the primary. The owner's earlier grant, whose release is lost
// too, is there again.
func TestAnOlderGrantOfTheOwnerSaysThatTheHoldIsLost(t *testing.T) {
	for _, owner := range []string{"s", "shared"} {
		b, s := newBook(), session("s")
		h := b.grant(s, owner, 5, 1, 1)
		r := b.Release(s, h.Key, 0)
		answer, want := HoldAnswer{Status: OtherGrant, Fence: 4}, LostLease
		if owner == "shared" { // the release is for any grant
			answer.Status, want = Freed, Yes
		}
		if got := b.Released(&r, answer); got != want {
			t.Errorf("UNLOCK by %s: reply %d", owner, got)
		}
		if b.settle(t) != 1 || len(b.told[0].To) != 0 || len(b.Holds()) != 0 {
			t.Errorf("UNLOCK by %s: %d holds, told to %v", owner, len(b.Holds()), b.told)
		}
		h = b.grant(s, owner, 6, 1, 2)
		b.settle(t)
		if got := b.Extended(s, h.Key, h, time.Minute, HoldAnswer{Status: OtherGrant, Fence: 4}); got != LostLease {
			t.Errorf("EXTENDLOCK by %s: reply %d", owner, got)
		}
		if b.settle(t) != 1 || len(b.Holds()) != 0 {
			t.Errorf("EXTENDLOCK by %s: %d holds", owner, len(b.Holds()))
		}
	}
}

// A release that was not sent cannot have ended the hold. If the lease has ended meanwhile, its holder is told when
// that is certain.
func TestALossBehindAReleaseThatWasNotSentIsTold(t *testing.T) {
	b, s := newBook(), session("s")
	h := b.grant(s, "s", 5, 1, 1)
	first := b.Release(s, h.Key, 0)
	second := b.Release(s, h.Key, 0) // finds no hold of the session
	if got := b.Released(&first, HoldAnswer{Status: Failed}); got != Failure {
		t.Fatalf("reply %d", got)
	}
	b.Lost(h, "deadline", false, nil)
	if b.settle(t) != 0 {
		t.Fatal("told while a release is on its way")
	}
	if got := b.Released(&second, HoldAnswer{Status: Failed}); got != LostLease {
		t.Errorf("reply %d", got)
	}
	if b.settle(t) != 0 {
		t.Error("told twice")
	}

	holder, other := session("holder"), session("other")
	h = b.grant(holder, "shared", 6, 1, 1)
	second = b.Release(other, h.Key, 0)
	b.Lost(h, "deadline", false, nil)
	if b.settle(t) != 0 {
		t.Fatal("told while a release is on its way")
	}
	if got := b.Released(&second, HoldAnswer{Status: Failed}); got != Failure {
		t.Errorf("reply %d", got)
	}
	if b.settle(t) != 1 || len(b.told) != 1 || len(b.told[0].To) != 1 || b.told[0].To[0] != holder {
		t.Errorf("told %v", b.told)
	}
}

func TestGraceAppliesToWhatASessionHoldsAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		owner  string
		grace  time.Duration
		others bool
		rest   bool
	}{
		{"the rest of the lease is left", "s", -1, false, false},
		{"nothing is left", "s", 0, false, true},
		{"a second is left", "s", time.Second, false, true},
		{"the rest of the lease of a named owner is left", "shared", -1, false, false},
		{"nothing of a named owner is left", "shared", 0, false, true},
		{"others go on, and the rest of their lease is left", "shared", -1, true, false},
		{"others go on, with a second", "shared", time.Second, true, false},
		{"others go on, without grace", "shared", 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s, o := newBook(), session("s"), session("o")
			k := Key{Lock: "k", Owner: c.owner, Kind: alone}
			g := Grant{By: s, Key: k, Fence: 5, Count: 1, SentAt: at(1), TTL: time.Minute, Grace: c.grace, Acquire: "s:1"}
			h := b.record(&g)
			g.Count, g.SentAt, g.Acquire = 2, at(2), "s:2"
			b.record(&g)
			if c.others {
				g.By, g.Count, g.SentAt = o, 3, at(3)
				b.record(&g)
			}
			for _, left := range s.Leave() {
				part, rest := b.EndPart(left, s)
				if rest != c.rest || part.Grace != c.grace || part.Acquire != "s:1" {
					t.Errorf("%+v %v", part, rest)
				}
			}
			b.settle(t)
			if b.Knows(h) != c.others {
				t.Errorf("the hold is known: %v", b.Knows(h))
			}
		})
	}
}

// A proxy does not renew the lock for sessions that have released all their holds: the holds that are left belong to
// sessions of another proxy, which may have died.
func TestAHoldThatNoSessionHereHasIsForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(b *book, h *Hold, s, o *Session)
		held bool // afterwards
	}{
		{"released", func(b *book, h *Hold, s, o *Session) {
			for i, by := range []*Session{s, o} {
				r := b.Release(by, h.Key, 0)
				b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 2 - int64(i), SentAt: at(3 + i)})
			}
		}, false},
		{"the first has released, and the second has gone", func(b *book, h *Hold, s, o *Session) {
			r := b.Release(s, h.Key, 0)
			b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 2, SentAt: at(3)})
			b.EndPart(h, o)
		}, false},
		{"the second still holds it", func(b *book, h *Hold, s, _ *Session) {
			r := b.Release(s, h.Key, 0)
			b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 2, SentAt: at(3)})
		}, true},
		{"released, with an acquire on its way", func(b *book, h *Hold, s, o *Session) {
			b.Deepening(acquireBy(b, o, h))
			for i, by := range []*Session{s, o} {
				r := b.Release(by, h.Key, 0)
				b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 2 - int64(i), SentAt: at(3 + i)})
			}
		}, true},
		{"released, and an acquire has come to nothing", func(b *book, h *Hold, s, o *Session) {
			w := acquireBy(b, o, h)
			b.Deepening(w)
			b.paused[h]++ // by the caller
			for i, by := range []*Session{s, o} {
				r := b.Release(by, h.Key, 0)
				b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 2 - int64(i), SentAt: at(3 + i)})
			}
			b.NotDeepened(w)
		}, false},
		{"the release is on its way, and the second has gone", func(b *book, h *Hold, s, o *Session) {
			b.Release(s, h.Key, 0)
			b.EndPart(h, o)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s, o := newBook(), session("s"), session("o")
			h := b.grant(s, "shared", 5, 2, 1) // one hold is another proxy's
			b.grant(o, "shared", 5, 3, 2)
			b.settle(t)
			c.end(b, h, s, o)
			told := b.settle(t)
			if b.Knows(h) != c.held || (len(b.paused) > 0) != c.held || told != 0 {
				t.Errorf("known: %v, %d leases, %d losses", b.Knows(h), len(b.paused), told)
			}
		})
	}
}

// acquireBy begins an acquire for the owner of a hold.
func acquireBy(b *book, s *Session, h *Hold) *Waiter {
	w := &Waiter{By: s, Key: h.Key, Asked: h.Kind}
	b.Begin(w)
	return w
}

func TestALossIsToldToTheSessionsThatHaveHolds(t *testing.T) {
	b, s, o := newBook(), session("s"), session("o")
	h := b.grant(s, "shared", 5, 1, 1)
	b.grant(o, "shared", 5, 2, 2)
	r := b.Release(s, h.Key, 0)
	b.Released(&r, HoldAnswer{Status: Held, Fence: 5, Holds: 1, SentAt: at(3)})
	b.Lost(h, ReasonGone, true, nil)
	if b.settle(t) != 1 || len(b.told[0].To) != 1 || b.told[0].To[0] != o {
		t.Errorf("told: %+v", b.told)
	}
	if b.KnowsLoss(s, h.Key, 0) || !b.KnowsLoss(o, h.Key, 0) {
		t.Error("the session without holds remembers a loss, or the other one does not")
	}
}

// A loss is not told if the release of another session of the owner may have ended the hold, until the release has an
// outcome.
func TestALossIsToldBehindARelease(t *testing.T) {
	for _, c := range []struct {
		status Status
		told   int
	}{{InDoubt, 1}, {Freed, 0}, {Failed, 1}} {
		b, s, o := newBook(), session("s"), session("o")
		h := b.grant(o, "shared", 5, 1, 1)
		r := b.Release(s, h.Key, 0)
		b.Lost(h, ReasonGone, false, nil)
		b.Released(&r, HoldAnswer{Status: c.status, Fence: 5})
		if told := b.settle(t); told != c.told {
			t.Errorf("status %v: %d losses are told, want %d", c.status, told, c.told)
		}
	}
}

// Whatever happens in whatever order: the table, the sessions and the leases agree, each pause of a lease is ended
// once, and nobody is told of more losses than there are grants.
func TestHoldsAgreeWithThemselvesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook()
		var sessions []*Session
		for i := range 3 {
			sessions = append(sessions, session(fmt.Sprint("s", i)))
		}
		type extension struct {
			by *Session
			k  Key
			h  *Hold
		}
		var releases []Release
		var extensions []extension
		fence, now := int64(1), 0
		key := func(s *Session) Key {
			return Key{Kind: alone, Lock: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lock"), Owner: rapid.SampledFrom([]string{s.Name, "shared"}).Draw(t, "owner")}
		}
		answer := func() HoldAnswer {
			return HoldAnswer{
				Status: rapid.SampledFrom([]Status{Failed, InDoubt, Freed, Held, NotHolder, OtherGrant}).Draw(t, "status"),
				Fence:  rapid.Int64Range(max(0, fence-2), fence).Draw(t, "answered fence"), Holds: rapid.Int64Range(1, 3).Draw(t, "left"),
				SentAt: at(rapid.IntRange(max(0, now-3), now).Draw(t, "sent")),
			}
		}
		for range rapid.IntRange(20, 80).Draw(t, "events") {
			now++
			s := rapid.SampledFrom(sessions).Draw(t, "session")
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1:
				fence += int64(rapid.IntRange(0, 1).Draw(t, "new"))
				mine := rapid.Int64Range(1, 2).Draw(t, "mine")
				b.record(&Grant{By: s, Key: key(s), Fence: fence, Count: mine, SentAt: at(now), TTL: time.Minute, Grace: -1})
			case 2:
				releases = append(releases, b.Release(s, key(s), 0))
			case 3:
				if len(releases) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(releases)-1).Draw(t, "release")
				b.Released(&releases[i], answer())
				releases = append(releases[:i], releases[i+1:]...)
			case 4:
				k := key(s)
				x := extension{s, k, b.Hold(k)}
				if x.h != nil {
					b.paused[x.h]++ // by the caller
				}
				extensions = append(extensions, x)
			case 5:
				if len(extensions) == 0 {
					continue
				}
				x := extensions[0]
				extensions = extensions[1:]
				b.Extended(x.by, x.k, x.h, time.Second, answer())
			case 6:
				if h := b.Hold(key(s)); h != nil {
					b.Lost(h, ReasonGone, rapid.Bool().Draw(t, "certain"), nil)
				}
			}
			b.settle(t)
			if len(b.Holds()) != len(b.paused) {
				t.Fatalf("%d holds, %d leases", len(b.Holds()), len(b.paused))
			}
			parts := 0
			for _, h := range b.Holds() {
				if b.Hold(h.Key) != h || len(h.Parts()) == 0 {
					t.Fatalf("%v is in the list, and not to be found, or held by no session", h.Key)
				}
				parts += len(h.Parts())
				for _, o := range h.Parts() {
					if !o.Session.Has(h) || o.Holds < 0 {
						t.Fatalf("%s does not know its part in %v: %d", o.Session.Name, h.Key, o.Holds)
					}
				}
			}
			for _, s := range sessions {
				parts -= s.Holding()
			}
			if parts != 0 || len(b.told) > len(b.tracked) {
				t.Fatalf("%d parts too many, %d losses of %d grants", parts, len(b.told), len(b.tracked))
			}
		}
		for i := 0; i < len(releases); i++ { // an end to everything on its way
			b.Released(&releases[i], HoldAnswer{Status: Failed})
			b.settle(t)
		}
		for _, x := range extensions {
			b.Extended(x.by, x.k, x.h, time.Second, HoldAnswer{Status: Failed})
			b.settle(t)
		}
		for h, n := range b.paused {
			if n != 0 {
				t.Fatalf("%v stays paused %d times", h.Key, n)
			}
		}
	})
}

// The memory of a hold counts for each session that has a part in it, once, until the hold ends.
func TestTheMemoryOfHoldsIsCounted(t *testing.T) {
	b, s, o := newBook(), session("s"), session("o")
	s.Memory, o.Memory = new(atomic.Int64), new(atomic.Int64)
	h := b.grant(s, "shared", 5, 1, 1)
	one := s.Memory.Load()
	b.grant(s, "shared", 5, 2, 2)
	b.grant(o, "shared", 5, 3, 3)
	if s.Memory.Load() != one || o.Memory.Load() != one || one < int64(len("k")+len("shared")) {
		t.Errorf("%d bytes, then %d and %d", one, s.Memory.Load(), o.Memory.Load())
	}
	b.Drop(h)
	b.Drop(h)
	if s.Memory.Load() != 0 || o.Memory.Load() != 0 {
		t.Errorf("%d and %d bytes are left", s.Memory.Load(), o.Memory.Load())
	}
}

// What a session leaves behind has an order, so that the same calls always have the same effects.
func TestASessionLeavesItsHoldsInOneOrder(t *testing.T) {
	b, s := newBook(), session("s")
	var want []string
	for i := range 20 {
		name := string(rune('a' + i))
		b.record(&Grant{By: s, Key: Key{Lock: name, Owner: "s", Kind: alone}, Fence: int64(i + 1), Count: 1, SentAt: at(1), TTL: time.Minute})
		want = append(want, name)
	}
	var got []string
	for _, h := range s.Leave() {
		got = append(got, h.Lock)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A whole grant is released by another session: its holds come back if that has not happened, and the session that had
// them is told if Redis does not have the grant.
func TestAWholeGrantIsReleased(t *testing.T) {
	for _, c := range []struct {
		answer HoldAnswer
		want   Reply
		holds  int64 // afterwards
		told   int
	}{
		{HoldAnswer{Status: Freed, Fence: 5}, Yes, 0, 0},
		{HoldAnswer{Status: Failed}, Failure, 3, 0},
		{HoldAnswer{Status: InDoubt}, Failure, 0, 0},
		{HoldAnswer{Status: NotHolder}, LostLease, 0, 1},
	} {
		b, s := newBook(), session("s")
		h := b.grant(s, "s", 5, 3, 1)
		b.settle(t)
		if !h.Private() {
			t.Fatal("another session may acquire for the owner")
		}
		r := b.ReleaseAll(h)
		b.settle(t)
		if !r.Lowered || r.Fence != 5 || r.Holds != 0 || h.IsHeldBy(s) || h.releasing != 1 {
			t.Errorf("the release is sent as %+v", r)
		}
		if got := b.Released(&r, c.answer); got != c.want {
			t.Errorf("%+v: %v, want %v", c.answer, got, c.want)
		}
		told := b.settle(t)
		holds := int64(0)
		if o := h.PartOf(s); o != nil {
			holds = o.Holds
		}
		if told != c.told || holds != c.holds || h.ending != 0 || h.releasing != 0 || b.paused[h] != 0 {
			t.Errorf("%+v: %d told, %d holds, paused %d times", c.answer, told, holds, b.paused[h])
		}
		if lost := c.told > 0; b.WasLost(s, h.Key, 5) != lost || b.KnowsLoss(s, h.Key, 0) != lost || lost && b.told[0].To[0] != s {
			t.Errorf("%+v: the session knows of a loss: %v; told %v", c.answer, !lost, b.told)
		}
	}
}

// Acquires of a session may have owners of their own. Its command without a name means one hold, or none.
func TestASessionWhoseAcquiresHaveOwners(t *testing.T) {
	b, s := newBook(), session("s")
	s.Each = true
	grant := func(number, fence int64) *Hold {
		return b.grant(s, s.OwnerFor(number), fence, 1, int(fence))
	}
	means := func(want *Hold, sure bool) {
		t.Helper()
		if h, ok := s.Own("k"); ok != sure || ok && h != want {
			t.Errorf("it means %v (%v), want %v (%v)", h, ok, want, sure)
		}
	}
	means(nil, true)
	first := grant(1, 5)
	means(first, true)
	s.Asks("k")
	means(nil, false)
	second := grant(2, 6)
	means(nil, false)
	b.Drop(first)
	means(second, true) // the last that it has asked for
	third := grant(3, 7)
	b.Drop(third)
	means(nil, false) // a later one was asked for
	b.Drop(second)
	means(nil, true)
	if s.Owns("s2:1") || s.Owns("x") || !s.Owns("s:7") || s.own["k"].count != 0 {
		t.Error("not its own")
	}
}

func TestThereIsOneQuestionAtATimeAboutAGrant(t *testing.T) {
	b, s := newBook(), session("s")
	h := b.grant(s, "s", 5, 1, 1)
	if !h.Look(false) || h.Look(false) || h.Look(false) {
		t.Error("not one question")
	}
	if !h.Looked() || h.Looked() {
		t.Error("the reasons that have come meanwhile are not one question more")
	}
	if !h.Look(false) || h.Look(false) {
		t.Error("no question behind the answer")
	}
	if b.Drop(h); h.Looked() {
		t.Error("a question about a hold that has ended")
	}
}

// A message may prove that a grant was released by its handle before Redis is asked. If a command finds meanwhile that
// the grant is over, that is no loss. A message about a grant that goes on proves nothing of its later end.
func TestTheEndOfAGrantThatAMessageExplainsIsNoLoss(t *testing.T) {
	for explained, want := range map[bool]int{true: 0, false: 1} {
		b, s := newBook(), session("s")
		h := b.grant(s, "s", 5, 1, 1)
		h.Look(true)
		if !explained {
			h.Looked()
		}
		b.Gone(h)
		if n := len(b.suspects.next); n != want {
			t.Errorf("explained %v: %d losses", explained, n)
		}
	}
}

// An extension may be sent, and answered, while the answer to the acquire that made the grant is on its way.
func TestAnExtensionThatWasSentBeforeTheGrantWasKnownCounts(t *testing.T) {
	b, s := newBook(), session("s")
	h := b.grant(s, "o", 5, 1, 1)
	b.settle(t)
	if got := b.Extended(s, h.Key, nil, time.Hour, HoldAnswer{Status: Held, Fence: 5, Holds: 1, SentAt: at(2)}); got != Yes {
		t.Errorf("reply %d", got)
	}
	b.settle(t)
	if h.TTL != time.Hour || b.paused[h] != 0 {
		t.Errorf("lease %v, %d pauses", h.TTL, b.paused[h])
	}
}
