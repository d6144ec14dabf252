package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history is a random one: clients ask, hang up, time out, release; answers, messages and confirmations arrive in any
// order.
func history(t *rapid.T, w *world, faults bool) (asked []*client) {
	ways := []bool{plain, fair}
	pick := rapid.IntRange(0, 1000)
	waiter := func() *client {
		for _, c := range w.clients[pick.Draw(t, "client")%max(1, len(w.clients)):] {
			if c.Waits() {
				return c
			}
		}
		return nil
	}
	var joins []func() // answers to first attempts on their way
	actions := map[string]func(*rapid.T){
		"ask slowly": func(t *rapid.T) {
			owner := rapid.SampledFrom([]string{"", "job"}).Draw(t, "owner")
			c, join := w.request(ways[pick.Draw(t, "way")%2], owner)
			asked = append(asked, c)
			if join != nil {
				joins = append(joins, join)
			}
		},
		"answer": func(*rapid.T) {
			if len(joins) > 0 {
				joins[0]()
				joins = joins[1:]
			}
		},
		"ask": func(t *rapid.T) {
			owner := rapid.SampledFrom([]string{"", "", "", "job"}).Draw(t, "owner")
			asked = append(asked, w.ask(ways[pick.Draw(t, "way")%2], owner))
		},
		"progress": func(t *rapid.T) {
			for range 3 {
				w.progress(pick.Draw(t, "what"))
			}
		},
		"release": func(t *rapid.T) {
			if w.holder != "" {
				w.release(rapid.Bool().Draw(t, "hand over"))
			}
		},
		"leave": func(*rapid.T) {
			if c := waiter(); c != nil {
				w.s.Left(&c.Waiter)
				w.effects()
			}
		},
		"time out": func(*rapid.T) {
			if c := waiter(); c != nil {
				w.s.TimedOut(&c.Waiter)
				w.effects()
			}
		},
		"patience": func(*rapid.T) {
			if w.patience {
				w.patience = false
				w.s.PatienceDue(w.names.Key)
				w.effects()
			}
		},
		"timer": func(t *rapid.T) {
			q := w.s.Queue(w.names.Key)
			timer := Timer(pick.Draw(t, "timer") % TimersCount)
			if q != nil && w.timers[timer] && timer != lookDue {
				delete(w.timers, timer)
				q.TimerDue(timer)
				w.effects()
			}
		},
	}
	if faults {
		actions["no answer"] = func(t *rapid.T) {
			if n := len(w.attempts); n > 0 {
				w.faulty = true
				c := w.attempts[n-1]
				w.attempts = w.attempts[:n-1]
				status := Failed
				if rapid.Bool().Draw(t, "in doubt") {
					status = InDoubt
					if a := w.script(c, c.turn); a.Status == Held {
						w.holder = "" // its lease ends one day
						w.messages = append(w.messages, w.names.Channel)
					}
				}
				w.answer(c, Answer{Status: status})
			}
		}
		actions["new connection"] = func(*rapid.T) {
			w.faulty = true
			w.messages = nil
			for channel := range w.confirmed {
				w.wanted = append(w.wanted, channel)
			}
			slices.Sort(w.wanted)
		}
		actions["place lost"] = func(*rapid.T) {
			if len(w.queue) > 0 {
				w.faulty = true
				w.queue = w.queue[1:]
				w.wakeHead()
			}
		}
	}
	t.Repeat(actions)
	for _, join := range joins {
		join()
	}
	return asked
}

func TestEachWaiterIsAnsweredOnceAndNoneIsForgotten(t *testing.T) {
	for name, faults := range map[string]bool{"Redis answers": false, "Redis fails at times": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t)
				asked := history(t, w, faults)
				w.drain()
				for _, c := range asked {
					if c.outcome == NoOutcome {
						t.Fatalf("client %d was forgotten", c.n)
					}
				}
			})
		})
	}
}

func TestFairWaitersAreServedInTheOrderOfAsking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := heldWorld(t)
		n := rapid.IntRange(1, 20).Draw(t, "waiters")
		for range n {
			w.ask(fair, "")
			w.progress(rapid.IntRange(0, 100).Draw(t, "what"))
		}
		for k := 1; k <= n; k++ {
			w.settle()
			w.release(rapid.Bool().Draw(t, "hand over"))
			w.settle()
			if w.holder != w.clients[k].Owner {
				t.Fatalf("grant %d went to %s, not to %s", k, w.holder, w.clients[k].Owner)
			}
		}
		w.release(false)
		w.drain()
	})
}

func TestPlainWaitersAreServedInTheirOrder(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.ask(plain, "")
	}
	for k := 1; k < 10; k++ {
		w.settle()
		w.release(k%3 == 0)
		w.settle()
		if w.holder != w.clients[k].Owner {
			t.Fatalf("grant %d went to %s, not to %s", k, w.holder, w.clients[k].Owner)
		}
	}
	w.release(false)
	w.drain()
}

func TestNobodyAsksBeforeTheConfirmation(t *testing.T) {
	for _, k := range []bool{plain, fair} {
		w := heldWorld(t)
		c := w.ask(k, "")
		w.release(false)
		w.s.Wake("k")
		w.s.Queue("k").TimerDue(expiry)
		w.effects() // fails if it asks
		if len(w.attempts) > 0 {
			t.Fatal("it asks")
		}
		w.settle()
		if c.outcome != Granted {
			t.Fatalf("outcome %d after the confirmation", c.outcome)
		}
	}
}

// The first waiter listens to its own name, too, and leaves before that is confirmed. No waiter has asked since the
// subscription of the queue was confirmed.
func TestTheNextAsksForOneThatLeavesUnconfirmed(t *testing.T) {
	w := heldWorld(t)
	named := w.ask(plain, "job")
	next := w.ask(plain, "")
	w.release(false)
	w.confirmed["c"] = true
	w.s.Subscribed("c")
	w.effects()
	w.wanted, w.messages = nil, nil // the message came before the confirmation
	w.s.Left(&named.Waiter)
	w.effects()
	w.settle()
	if next.outcome != Granted {
		t.Fatalf("outcome %d of the next waiter", next.outcome)
	}
}

func TestTheDecidingAttemptIsSavedIfTheSubscriptionStood(t *testing.T) {
	w := heldWorld(t)
	w.ask(plain, "")
	w.settle()
	w.ask(plain, "")
	if len(w.attempts) > 0 {
		t.Fatal("another waiter behind the first asks")
	}
	joins := func(key string, fair bool, k Kind) bool {
		return w.s.MayJoin(&Waiter{Fair: fair, Key: Key{Lock: key, Kind: k}})
	}
	if !joins("k", plain, together) || joins("k", fair, alone) || joins("other", plain, alone) || joins("k", plain, permit) {
		t.Fatal("who may join unasked")
	}
}

func TestWokenWhileAskingAsksAgain(t *testing.T) {
	w := heldWorld(t)
	c := w.ask(plain, "")
	w.settle()
	w.s.Wake("k")
	w.effects()
	w.s.Published("c")
	w.effects()
	if len(w.attempts) != 1 {
		t.Fatalf("%d attempts", len(w.attempts))
	}
	w.attempts = nil
	w.answer(c, Answer{Status: Busy, TTL: NoTTL})
	if len(w.attempts) != 1 {
		t.Fatal("the message was forgotten")
	}
}

var errTest = errors.New("no")

func TestDismissalWaitsForTheAttempt(t *testing.T) {
	for _, granted := range []bool{false, true} {
		w := heldWorld(t)
		c := w.ask(fair, "")
		w.settle()
		w.s.Wake("k")
		w.effects()
		if !w.s.Remove(&c.Waiter, Null, nil) || w.s.Remove(&c.Waiter, Null, nil) || !w.s.Remove(&c.Waiter, Error, errTest) {
			t.Fatal("what a dismissal reports")
		}
		w.effects()
		if c.outcome != NoOutcome {
			t.Fatal("it is answered although an attempt is on its way")
		}
		want := Error
		if granted {
			w.holder, want = "", Granted
		}
		w.settle()
		if c.outcome != want {
			t.Fatalf("granted %t: outcome %d", granted, c.outcome)
		}
	}
}

func TestWaiterInDoubtIsToldSo(t *testing.T) {
	w := heldWorld(t)
	c := w.ask(plain, "")
	w.confirmed["c"] = true
	w.s.Subscribed("c")
	w.effects()
	w.attempts = nil
	w.answer(c, Answer{Status: InDoubt})
	if _, own := w.s.Offer(Key{Lock: "k", Kind: alone}, Streak{}, start); own != nil || c.state == asking {
		t.Fatal("a waiter in doubt is offered the lock")
	}
	w.s.TimedOut(&c.Waiter)
	w.s.Departing("k") // the attempt may have taken the crowd's place
	w.s.Departed("k")
	if e := w.effect(t, Finish); !e.Doubt || e.Outcome != Null {
		t.Fatalf("%+v", e)
	}
}

func TestRefusedSubscriptionEndsTheWait(t *testing.T) {
	w := heldWorld(t)
	p, f := w.ask(plain, ""), w.ask(fair, "")
	w.s.SubscriptionRefused("c", errTest)
	w.effects()
	w.settle()
	if p.outcome != Error || f.outcome != Error {
		t.Fatalf("outcomes %d, %d", p.outcome, f.outcome)
	}
	c := w.ask(plain, "") // a new queue tries anew
	w.settle()
	if c.outcome != NoOutcome || w.s.Denied("k") != nil {
		t.Fatal("the next one is refused unasked")
	}
}

func TestManyWaitersAreDealtWithInSlices(t *testing.T) {
	const many = 10_000
	for name, event := range map[string]func(w *world){
		"confirmation": func(w *world) { w.s.Subscribed("c") },
		"end":          func(w *world) { w.s.RemoveAll(errTest) },
		"refusal":      func(w *world) { w.s.SubscriptionRefused("c", errTest) },
		"same owner":   func(w *world) { w.s.Published("c:job") },
	} {
		t.Run(name, func(t *testing.T) {
			w := heldWorld(t)
			for range many {
				w.ask(fair, "job")
			}
			w.confirmed["c"], w.confirmed["c:job"] = true, true
			w.s.Subscribed("c:job")
			if name == "same owner" {
				w.s.Subscribed("c")
			}
			for w.effects(); w.goOn; {
				w.goOn = false
				w.s.GoOn()
				w.effects()
			}
			w.most = 0
			event(w)
			slices := 0
			for w.effects(); w.goOn; slices++ {
				w.goOn = false
				w.s.GoOn()
				w.effects()
			}
			if slices < many/sliceSize-1 && name != "same owner" || w.most > 2*sliceSize {
				t.Fatalf("%d slices of up to %d effects", slices, w.most)
			}
		})
	}
}

func TestAGrantWakesTheOthersOfTheOwner(t *testing.T) {
	w := heldWorld(t)
	first, second := w.ask(fair, "job"), w.ask(plain, "job")
	w.settle()
	w.s.Wake("k")
	w.effects()
	w.attempts = nil
	w.answer(second, Answer{Status: Busy, TTL: NoTTL})
	w.holder = ""
	w.answer(first, w.script(first, first.turn))
	w.messages = nil // the machine need not be told what it did itself
	w.settle()
	if first.outcome != Granted || second.outcome != Granted {
		t.Fatalf("outcomes %d, %d", first.outcome, second.outcome)
	}
}

// The first in Redis's queue takes the free lock and lets its lease run out. Nobody would announce that.
func TestAFreeLockIsLookedAtAgainSoon(t *testing.T) {
	w := heldWorld(t)
	w.ask(fair, "")
	w.settle()
	q := w.s.Queue("k")
	q.wake()
	w.s.Effects()
	w.s.Answered(q.fair.First(), Answer{TTL: Kept})
	for _, e := range w.s.Effects() {
		if e.Op == SetTimer && e.Timer == expiry && e.Delay == TurnLimit {
			return
		}
	}
	t.Error("no timer")
}

// watched is a queue whose reaper looks at the heads of a foreign queue.
func watched(t *testing.T, heads ...string) (w *world, q *Queue, expect func(op Op) Effect) {
	w = heldWorld(t)
	w.ask(fair, "")
	w.settle()
	q = w.s.Queue("k")
	expect = func(op Op) Effect {
		t.Helper()
		effects := w.s.Effects()
		i := slices.IndexFunc(effects, func(e Effect) bool { return e.Op == op })
		if i < 0 {
			t.Fatalf("no effect %d among %+v", op, effects)
		}
		return effects[i]
	}
	w.s.Published("c")
	expect(ListPlaces)
	q.PlacesListed(heads, OK)
	if e := expect(SetTimer); e.Timer != lookDue || e.Delay != w.s.config.StaleHead {
		t.Fatalf("%+v", e)
	}
	return w, q, expect
}

// A plain lock of Redisson's wakes no waiter by name when it is released: it tells the base channel alone.
func TestAHeadThatTheReaperHasSeenHearsTheBaseChannel(t *testing.T) {
	w, q, expect := watched(t, "dead", "o1")
	q.TimerDue(lookDue)
	expect(AskHead)
	q.HeadTold(true, "o1", OK) // it asks
	for q.fair.First().state == asking {
		w.s.Answered(q.fair.First(), Answer{TTL: time.Minute})
	}
	w.s.Effects()
	w.s.Published("c")
	w.effect(t, Attempt)
}

func TestDeadHeadsAreRemoved(t *testing.T) {
	_, q, expect := watched(t, "dead", "other", "o1")
	q.TimerDue(lookDue)
	expect(AskHead)
	q.HeadTold(true, "dead", OK)
	if e := expect(RemoveHead); e.Place != "dead" || e.Force {
		t.Fatalf("%+v", e)
	}
	q.HeadRemoved("dead", true, 0, OK)
	expect(AskHead)
	q.HeadTold(true, "newcomer", OK) // it was not there when the watch began
	if q.reaper.phase != asleep {
		t.Fatal("who has come lately is suspected")
	}
}

// The call by which the crowd left its place may have failed.
func TestThePlaceOfACrowdThatHasGoneIsADeadHead(t *testing.T) {
	w, q, expect := watched(t, "all", "o1")
	w.s.Left(&w.clients[0].Waiter)
	q.TimerDue(lookDue)
	q.HeadTold(true, "all", OK)
	if e := expect(RemoveHead); e.Place != "all" {
		t.Fatalf("%+v", e)
	}
}

func TestDeafHeadsAreRemovedAfterSomeLooks(t *testing.T) {
	const process = "0f8fad5b-d9cb-469f-a165-70867728950e"
	_, q, expect := watched(t, process+":1", process+":2", "o1")
	for look := range MaxLooks + 1 {
		q.TimerDue(lookDue)
		expect(AskHead)
		q.HeadTold(true, process+":1", OK)
		if e := expect(RemoveHead); e.Force != (look == MaxLooks) {
			t.Fatalf("look %d: %+v", look, e)
		}
		if look < MaxLooks {
			q.HeadRemoved(process+":1", false, 1, OK)
			if e := expect(SetTimer); e.Delay != LookAgain {
				t.Fatalf("%+v", e)
			}
		}
	}
	q.HeadRemoved(process+":1", true, 1, OK)
	expect(AskHead)
	q.HeadTold(true, process+":2", OK)
	if e := expect(RemoveHead); !e.Force {
		t.Fatal("another waiter of a ignored process is given more time")
	}
}

func TestReaperWaitsWhileRedisDoesNotAnswer(t *testing.T) {
	w, q, expect := watched(t, "dead", "o1")
	q.TimerDue(lookDue)
	q.HeadTold(true, "", Passing)
	if e := expect(SetTimer); e.Timer != lookDue || e.Delay != LookAgain {
		t.Fatalf("%+v", e)
	}
	w.s.Published("c") // it watches already
	if effects := w.s.Effects(); slices.ContainsFunc(effects, func(e Effect) bool { return e.Op == ListPlaces }) {
		t.Fatalf("%+v", effects)
	}
	q.reaper = reaper{}
	w.s.Published("c")
	expect(ListPlaces)
	q.PlacesListed(nil, Passing)
	if e := expect(SetTimer); e.Timer != lookDue || e.Delay != LookAgain {
		t.Fatalf("%+v", e)
	}
	q.TimerDue(lookDue)
	expect(ListPlaces)
	q.PlacesListed(nil, Final)
	if q.TimerDue(lookDue); q.reaper.phase != asleep || len(w.s.Effects()) > 0 {
		t.Fatal("it asks again what Redis refuses")
	}
}

func TestALookEnds(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(q *Queue)
		again  bool
	}{
		"the head waits here":          {func(q *Queue) { q.HeadTold(true, "o1", OK) }, false},
		"the queue is empty":           {func(q *Queue) { q.HeadTold(true, "", OK) }, false},
		"Redis refuses":                {func(q *Queue) { q.HeadTold(true, "", Final) }, false},
		"the head was not the first":   {func(q *Queue) { q.HeadRemoved("dead", false, 0, OK) }, false},
		"Redis refuses to remove":      {func(q *Queue) { q.HeadRemoved("dead", false, 0, Final) }, false},
		"Redis does not answer behind": {func(q *Queue) { q.HeadRemoved("dead", false, 0, Passing) }, true},
	} {
		_, q, expect := watched(t, "dead", "o1")
		q.TimerDue(lookDue)
		expect(AskHead)
		c.answer(q)
		if again := q.reaper.phase == idling; again != c.again || !again && q.reaper.phase != asleep {
			t.Errorf("%s: phase %d", name, q.reaper.phase)
		}
		expect(Attempt)
	}
}

// shortWait is a fair waiter that finds a free lock kept for a foreign head, and leaves with that outcome.
func shortWait(s *Table, key string, o Outcome) {
	w := &Waiter{By: &Session{}, Key: Key{Owner: "me", Kind: alone}, Fair: true, Place: "me", Wake: key + ":me"}
	s.Join(w, Names{Key: key, Channel: key, Place: "all", Wake: key + ":all"}, Mark{}, Answer{TTL: Kept})
	s.Subscribed(key)
	s.Subscribed(w.Wake)
	if o == Granted {
		s.Answered(w, Answer{Status: Held, TTL: time.Second})
		return
	}
	s.Answered(w, Answer{TTL: Kept}) // to the attempt upon one confirmation, and to the one upon the other
	if w.state == asking {
		s.Answered(w, Answer{TTL: Kept})
	}
	s.Remove(w, o, nil)
}

func TestShortWaitsRemoveADeadHead(t *testing.T) {
	w, q, expect := watched(t, "dead", "o1")
	w.s.TimedOut(&w.clients[1].Waiter)
	if e := expect(SetTimer); e.Timer != lingerOver || e.Delay <= w.s.config.StaleHead+MaxLooks*LookAgain {
		t.Fatalf("it lingers for less than a watch: %+v", e)
	}
	for range 3 { // the watch goes on with the next waiters
		shortWait(w.s, "k", Null)
		for _, e := range w.s.Effects() {
			if e.Op == ListPlaces || e.Op == SetTimer && e.Timer == lookDue || e.Op == StopTimers {
				t.Fatalf("the watch begins anew: %+v", e)
			}
		}
	}
	q.TimerDue(lookDue)
	expect(AskHead)
	q.HeadTold(true, "dead", OK)
	expect(RemoveHead)
	q.HeadRemoved("dead", true, 0, OK)
	expect(AskHead)
	q.HeadTold(true, "", OK)
	if expect(StopTimers); len(w.s.Queues()) > 0 || w.s.lingering.Len() > 0 {
		t.Error("the queue lingers without a watch")
	}
}

func TestShortWaitsDoNotTakeALiveHeadForDead(t *testing.T) {
	w, q, expect := watched(t, "slow", "o1")
	for range 3 * MaxLooks {
		shortWait(w.s, "k", Null)
		q.TimerDue(lookDue)
		q.HeadTold(true, "slow", OK)
		if e := expect(RemoveHead); e.Force {
			t.Fatal("it counts as ignored")
		}
		w.s.Published("c") // nobody waits here, and somebody else was faster and has released
		q.HeadRemoved("slow", false, 1, OK)
	}
}

// lookAtNobody is a look that finds an empty queue in Redis.
func lookAtNobody(q *Queue) {
	q.PlacesListed(nil, OK)
	q.TimerDue(lookDue)
	q.HeadTold(true, "", OK)
}

func TestAQueueLingersWithinBounds(t *testing.T) {
	newSet := func() *Table { return newWorld(t).s }
	lingers := func(s *Table, want int) {
		t.Helper()
		if len(s.Queues()) != want || s.lingering.Len() != want || s.Waiters() != 0 {
			t.Errorf("%d queues, %d linger, want %d", len(s.Queues()), s.lingering.Len(), want)
		}
	}
	s := New(Config{})
	shortWait(s, strings.Repeat("k", lingerName+1), Gone)
	lingers(s, 0)
	for n := range 3 * lingerLimit {
		shortWait(s, fmt.Sprint(n), Gone)
	}
	lingers(s, lingerLimit)
	for n := range lingerLimit {
		s.Queue(fmt.Sprint(n)).TimerDue(lingerOver)
	}
	lingers(s, 0)
	for name, end := range map[string]func(s *Table){
		"its time is over":        func(s *Table) { s.Queue("k").TimerDue(lingerOver) },
		"the proxy stops":         func(s *Table) { s.RemoveAll(errTest) },
		"Redis refuses to listen": func(s *Table) { s.SubscriptionRefused("k", errTest) },
		"Redis refuses to answer": func(s *Table) { s.Queue("k").PlacesListed(nil, Final) },
		"a look finds nobody":     func(s *Table) { lookAtNobody(s.Queue("k")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{})
			shortWait(s, "k", Null)
			shortWait(s, "k", Granted) // it may have passed a head that does not listen
			lingers(s, 1)
			if end(s); s.Queue("k") != nil {
				t.Error("it lingers")
			}
			lingers(s, 0)
		})
	}
	s = newSet()
	s.RemoveAll(errTest)
	shortWait(s, "k", Error)
	lingers(s, 0)

	w, _, _ := watched(t, "dead")
	w.s.SubscriptionRefused("c", errTest) // the next waiter must not be refused unasked
	lingers(w.s, 0)

	w = heldWorld(t) // without a watch
	w.s.TimedOut(&w.ask(fair, "").Waiter)
	lingers(w.s, 0)
}

func TestALingeringQueueIsAsNewForTheNextWaiter(t *testing.T) {
	w, q, _ := watched(t, "dead", "o1")
	w.s.TimedOut(&w.clients[1].Waiter)
	q.pause = time.Second
	w.s.Published("c")
	w.s.Effects()
	c, join := w.request(plain, "")
	join()
	if c.queue != q || q.woken || q.pause != 0 || !q.timed {
		t.Errorf("another queue: %v; woken %v, pause %v, timed %v", c.queue != q, q.woken, q.pause, q.timed)
	}
}

func TestOwnHeadIsWoken(t *testing.T) {
	w, q, _ := watched(t, "o1")
	q.TimerDue(lookDue)
	q.HeadTold(true, "o1", OK)
	if c := w.clients[1]; c.state != asking || !c.woken || q.reaper.phase != asleep {
		t.Fatalf("%+v", c)
	}
}

// effect returns the effect of that kind of the latest events.
func (w *world) effect(t *testing.T, op Op) Effect {
	t.Helper()
	effects := w.s.Effects()
	i := slices.IndexFunc(effects, func(e Effect) bool { return e.Op == op })
	if i < 0 {
		t.Fatalf("no effect %d among %+v", op, effects)
	}
	return effects[i]
}

// noEffect fails the test if the latest events have an effect of that kind.
func (w *world) noEffect(t *testing.T, op Op) {
	t.Helper()
	if effects := w.s.Effects(); slices.ContainsFunc(effects, func(e Effect) bool { return e.Op == op }) {
		t.Fatalf("an effect %d among %+v", op, effects)
	}
}

func TestAMessageBeforeTheWaiterJoinsCausesAnAttempt(t *testing.T) {
	for owner, k := range map[string]bool{"": plain, "job": fair} {
		w := heldWorld(t)
		other := w.ask(k, owner) // has the channels confirmed
		w.settle()
		c, join := w.request(k, owner)
		w.s.Left(&other.Waiter)
		w.s.Published("c")
		w.effects()
		join()
		if len(w.attempts) != 1 || w.attempts[0] != c {
			t.Errorf("own place %t: %d attempts", k, len(w.attempts))
		}
	}
}

func TestAFreeLockThatIsKeptForAnotherIsAskedForFromTheQueue(t *testing.T) {
	w := heldWorld(t)
	other := w.ask(plain, "")
	w.settle()
	w.holder, w.queue = "", []string{"foreign"}
	c, join := w.request(plain, "")
	w.s.Left(&other.Waiter)
	w.effects()
	join()
	if len(w.attempts) != 1 || w.attempts[0] != c {
		t.Fatalf("%d attempts", len(w.attempts))
	}
	w.attempts = nil
	c.asking = false
	w.s.Answered(&c.Waiter, Answer{TTL: Kept, Placed: true, Place: 2})
	w.effect(t, ListPlaces) // the one before it may be dead
}

func TestAMessageDuringAnAttemptThatSucceedsIsForTheNext(t *testing.T) {
	w := heldWorld(t)
	c, next := w.ask(plain, ""), w.ask(plain, "")
	w.settle()
	w.s.Wake("k")
	w.s.Published("c") // perhaps about the end of the very grant that the attempt is about to get
	w.effects()
	w.attempts = nil
	w.answer(c, Answer{Status: Held, TTL: 1})
	if len(w.attempts) != 1 || w.attempts[0] != next {
		t.Fatalf("%d attempts", len(w.attempts))
	}
}

func TestAHeadThatIsNotTheFirstHereIsLookedFor(t *testing.T) {
	w := heldWorld(t)
	first, second := w.ask(fair, ""), w.ask(fair, "")
	w.settle()
	w.s.Wake("k")
	w.effects()
	first.asking = false
	w.s.Answered(&first.Waiter, Answer{TTL: Kept})
	if e := w.effect(t, AskHead); e.Look {
		t.Fatal("the reaper asks")
	}
	w.s.Queue("k").HeadTold(false, "o2", OK)
	if e := w.effect(t, Attempt); e.Waiter != &second.Waiter {
		t.Fatal("another one asks")
	}
}

func TestAnAttemptThatFailsIsRepeatedLater(t *testing.T) {
	w := heldWorld(t)
	c := w.ask(plain, "")
	w.settle()
	for pause := retryFirst; pause <= retryLast; pause *= 2 {
		w.s.Wake("k")
		w.s.Effects()
		w.s.Answered(&c.Waiter, Answer{Status: Failed})
		if e := w.effect(t, SetTimer); e.Timer != expiry || e.Delay != pause/2 || e.Spread != pause/2 {
			t.Fatalf("%+v", e)
		}
	}
}

// A fair waiter whose attempt has failed may have no place in Redis, so no release would wake it.
func TestAFairWaiterAsksAgainWhenRedisAnswersAnother(t *testing.T) {
	w := heldWorld(t)
	first, second := w.ask(fair, ""), w.ask(fair, "")
	w.settle()
	for _, c := range []*client{first, second} {
		w.s.try(&c.Waiter)
	}
	w.s.Effects()
	w.s.Answered(&second.Waiter, Answer{Status: Failed})
	w.effect(t, SetTimer)
	w.s.Answered(&first.Waiter, Answer{TTL: time.Minute})
	if e := w.effect(t, Attempt); e.Waiter != &second.Waiter {
		t.Error("another one asks")
	}
}

// The first waiter cannot ask before its own channel is confirmed, and may leave before that.
func TestAFairWaiterAsksWhenTheLastOfItsChannelsIsConfirmed(t *testing.T) {
	w := heldWorld(t)
	c := w.ask(fair, "o1")
	w.s.Effects()
	w.s.Subscribed(c.Wake)
	w.noEffect(t, Attempt)
	w.s.Subscribed("c")
	w.effect(t, Attempt)
	w.s.Left(&c.Waiter)
	w.s.Answered(&c.Waiter, Answer{Status: Busy, TTL: NoTTL})
	if w.s.Queue("k") != nil || w.s.channels.byName["c"].queues.Len() != 0 {
		t.Error("the queue goes on without a waiter, or listens")
	}
}

func TestAWakeUpOfAWaiterThatCannotAskIsNotLost(t *testing.T) {
	for name, wake := range map[string]func(w *world){
		"a message": func(w *world) { w.s.Published("c") },
		"a timer":   func(w *world) { w.s.Queue("k").TimerDue(expiry) },
	} {
		w := heldWorld(t)
		earlier := w.ask(plain, "")
		w.settle()
		c, next := w.ask(plain, "job"), w.ask(plain, "")
		w.s.TimedOut(&earlier.Waiter)
		w.s.Effects()
		wake(w)
		w.noEffect(t, Attempt)
		w.s.TimedOut(&c.Waiter)
		if e := w.effect(t, Attempt); e.Waiter != &next.Waiter {
			t.Errorf("%s: another one asks", name)
		}
	}
	w := heldWorld(t)
	w.ask(fair, "o1")
	w.s.Effects()
	w.s.Queue("k").TimerDue(expiry)
	if e := w.effect(t, SetTimer); e.Timer != expiry || e.Delay != retryLast {
		t.Errorf("%+v", e)
	}
}

// The timer that repeats a failed attempt is not put off by the answer to another waiter's attempt, which may be older
// than the release.
func TestAnotherAnswerDoesNotPutOffAFailedAttempt(t *testing.T) {
	w := heldWorld(t)
	c, other := w.ask(plain, ""), w.ask(plain, "job")
	w.settle()
	for _, c := range []*client{c, other} {
		w.s.try(&c.Waiter)
	}
	w.s.Effects()
	w.s.Answered(&c.Waiter, Answer{Status: Failed})
	w.effect(t, SetTimer)
	w.s.Answered(&other.Waiter, Answer{TTL: time.Minute})
	w.noEffect(t, SetTimer)
	c.queue.TimerDue(expiry)
	if asks, _ := c.Asks(); !asks {
		t.Error("the failed attempt is not repeated")
	}
	w.s.Answered(&c.Waiter, Answer{TTL: time.Minute})
	w.s.Answered(&other.Waiter, Answer{TTL: time.Minute})
	if e := w.effect(t, SetTimer); e.Timer != expiry || e.Delay != w.s.config.Lease {
		t.Errorf("%+v", e)
	}
}

func TestAPlaceThatAnotherWaiterOfTheOwnerNeedsStays(t *testing.T) {
	w := heldWorld(t)
	c, _ := w.ask(fair, "job"), w.ask(fair, "job")
	w.settle()
	w.s.TimedOut(&c.Waiter)
	if e := w.effect(t, Finish); e.Outcome != Null || w.s.Leaving() != 0 {
		t.Fatalf("%+v", e)
	}
}

func TestTheLastPlainWaiterIsToldWhenTheSharedPlaceHasLeft(t *testing.T) {
	for _, o := range []Outcome{Null, Error, Gone} {
		w := heldWorld(t)
		first, last := w.ask(plain, ""), w.ask(plain, "")
		w.settle()
		w.s.Published("c")
		w.s.Effects()
		w.s.Answered(&first.Waiter, Answer{TTL: NoTTL, Placed: true, Place: Head})
		w.s.Effects()
		w.s.Remove(&first.Waiter, o, nil)
		if e := w.effect(t, Finish); e.Waiter != &first.Waiter || w.s.Leaving() != 0 {
			t.Fatalf("outcome %d: the place leaves with the first waiter", o)
		}
		w.s.Remove(&last.Waiter, o, nil)
		told := 0
		for _, e := range w.s.Effects() {
			if e.Op == Finish {
				told++
			}
		}
		if want := map[Outcome]int{Gone: 1}[o]; told != want {
			t.Fatalf("outcome %d: %d replies before the place has left", o, told)
		}
		if got := w.s.Departing("k"); !slices.Equal(got, []string{w.names.Place}) {
			t.Fatalf("outcome %d: %v leave", o, got)
		}
		w.s.Departed("k")
		for _, e := range w.s.Effects() {
			if e.Op == Finish {
				told++
			}
		}
		if told != 1 || w.s.Leaving() != 0 {
			t.Fatalf("outcome %d: %d replies", o, told)
		}
	}
}

// A contended lock has a few effects for each command, and an empty list of effects behind them.
func TestTheListOfEffectsIsUsedAgain(t *testing.T) {
	s := New(Config{})
	step := func() {
		s.emit(Effect{Op: Tidy})
		for all := s.Effects(); len(all) > 0; all = s.Effects() {
			s.Done(all)
		}
	}
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("each step allocates %v lists of effects", n)
	}
}

// Its channel may be confirmed already, so no attempt follows that one.
func TestTheAnswerBeforeTheWaitSaysWhoIsTheFirst(t *testing.T) {
	for _, place := range []Place{Head, NoPlace} {
		s := newWorld(t).s
		w := &Waiter{By: &Session{}, Key: Key{Owner: "me", Kind: alone}, Fair: true, Place: "me", Wake: "k:me"}
		s.Join(w, Names{Key: "k", Channel: "k", Place: "all", Wake: "k:all"}, Mark{}, Answer{TTL: time.Minute, Place: place})
		if w.first != (place == Head) {
			t.Errorf("place %d: it is the first: %t", place, w.first)
		}
	}
}
