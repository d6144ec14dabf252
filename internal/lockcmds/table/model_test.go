package table

import (
	"fmt"
	"slices"
	"time"
)

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is one lock in a model of Redis, the machine, and a caller that carries out its effects when a test says so.
type world struct {
	t     tester
	s     *Table
	names Names

	// Redis.
	holder string
	queue  []string // places

	clients   []*client
	confirmed map[string]bool // channels that Redis has confirmed
	wanted    []string        // channels to be confirmed
	messages  []string        // channels with a message on its way
	attempts  []*client       // on their way
	timers    map[Timer]bool
	patience  bool
	leaving   bool
	places    [][]string // to be refreshed
	listing   bool
	heads     []bool // questions for the head on their way; true: the reaper's
	goOn      bool
	faulty    bool // Redis has failed to answer, or a message was lost
	most      int  // effects of one event
}

type client struct {
	Waiter
	n       int
	outcome Outcome // None: it waits
	asking  bool
}

func newWorld(t tester) *world {
	return &world{
		t: t, s: New(Config{Lease: 30 * time.Second, Wait: 300 * time.Second, StaleHead: 8 * time.Second}),
		names:     Names{Key: "k", Channel: "c", Place: "all", Wake: "c:all"},
		confirmed: map[string]bool{}, timers: map[Timer]bool{},
	}
}

// heldWorld is a world in which the first client has the lock.
func heldWorld(t tester) *world {
	t.Helper()
	w := newWorld(t)
	w.ask(plain, "")
	return w
}

// ask is a client's first attempt; it joins if the lock is not to be had.
func (w *world) ask(k bool, owner string) *client {
	w.t.Helper()
	c, join := w.request(k, owner)
	if join != nil {
		join()
	}
	return c
}

// request is a client's first attempt. join is what the answer causes, when it arrives; nil: the lock was granted.
func (w *world) request(k bool, owner string) (c *client, join func()) {
	w.t.Helper()
	c = &client{n: len(w.clients)}
	c.By, c.Lock, c.Kind, c.Fair, c.Name = &Session{}, w.names.Key, alone, k, owner
	if c.Owner = owner; owner == "" {
		c.Owner = fmt.Sprint("o", c.n)
	}
	c.Place, c.Wake, c.Tag, c.Placed = c.Owner, "c:"+c.Owner, c, true
	w.clients = append(w.clients, c)
	mark := w.s.Mark(&c.Waiter)
	a := w.script(c, turn{})
	if a.Status == Held {
		c.outcome = Granted
		return c, nil
	}
	return c, func() {
		w.s.Join(&c.Waiter, w.names, mark, a)
		w.effects()
	}
}

// script is the attempt of a waiter as the scripts have it.
func (w *world) script(c *client, at turn) Answer {
	place := c.Place
	if !c.Fair {
		place = w.names.Place
	}
	where := func() Place { return w.where(place) }
	mine := len(w.queue) == 0 || w.queue[0] == place && (c.Fair || at.first)
	switch {
	case w.holder == c.Owner, w.holder == "" && mine:
		deeper := w.holder != ""
		w.holder = c.Owner
		if c.Fair || at.first && !at.stays {
			w.queue = slices.DeleteFunc(w.queue, func(p string) bool { return p == place })
		}
		if c.OfNamed() && !deeper {
			w.messages = append(w.messages, c.Wake)
		}
		return Answer{Status: Held, TTL: 30 * time.Second, Place: where()}
	case c.Fair || at.first && (at.enqueue || len(w.queue) > 0):
		if where() == NoPlace {
			w.queue = append(w.queue, place)
		}
	}
	ttl := 10 * time.Second
	if w.holder == "" {
		ttl = Kept
	}
	if c.Fair { // the holder is ours: its release wakes the first by name
		return Answer{Status: Busy, TTL: ttl}
	}
	return Answer{Status: Busy, TTL: ttl, Placed: at.first, Place: where()}
}

// release frees the lock, by a hand-over if the machine offers somebody.
func (w *world) release(handOver bool) {
	w.t.Helper()
	owner := w.holder
	w.holder = ""
	var plain, fair *Waiter
	if handOver {
		plain, fair = w.s.Offer(Key{Lock: w.names.Key, Owner: owner, Kind: alone}, Streak{}, start)
	}
	next := func(o *Waiter, place string) bool {
		return o != nil && w.holder == "" && (len(w.queue) == 0 || w.queue[0] == place)
	}
	for _, o := range []*Waiter{fair, plain} {
		if o == nil {
			continue
		}
		c := o.Tag.(*client)
		c.asking = true
		place := w.names.Place
		if o.Fair {
			place = o.Place
		}
		if next(o, place) {
			w.answer(c, w.script(c, o.turn))
			continue
		}
		w.answer(c, Answer{Status: Busy, TTL: NoTTL, Placed: !o.Fair, Place: w.where(w.names.Place)})
	}
	if w.holder != "" {
		return
	}
	w.messages = append(w.messages, w.names.Channel)
	w.wakeHead()
}

func (w *world) where(place string) Place {
	switch slices.Index(w.queue, place) {
	case -1:
		return NoPlace
	case 0:
		return Head
	}
	return Behind
}

func (w *world) wakeHead() {
	if len(w.queue) > 0 {
		w.messages = append(w.messages, "c:"+w.queue[0])
	}
}

func (w *world) answer(c *client, a Answer) {
	w.t.Helper()
	if !c.asking || !c.Waits() {
		w.t.Fatalf("client %d has no attempt on its way", c.n)
	}
	c.asking = false
	w.s.Answered(&c.Waiter, a)
	w.effects()
}

// effects notes what the machine wants, and checks it.
func (w *world) effects() {
	w.t.Helper()
	if q := w.s.Queue(w.names.Key); (q != nil) != slices.Contains(w.s.Queues(), q) || len(w.s.Queues()) != len(w.s.holders.locks) {
		w.t.Fatalf("the list of queues is %v", w.s.Queues())
	}
	if oldest := w.s.Oldest(); (oldest != nil) != (w.s.Waiters() > 0) || oldest != nil && !oldest.Waits() {
		w.t.Fatalf("of %d waiters the oldest is %v", w.s.Waiters(), oldest)
	}
	effects := w.s.Effects()
	w.most = max(w.most, len(effects))
	for _, e := range effects {
		switch e.Op {
		case Attempt:
			c := e.Waiter.Tag.(*client)
			switch {
			case c.outcome != NoOutcome || !c.Waits():
				w.t.Fatalf("client %d asks after its reply", c.n)
			case c.asking:
				w.t.Fatalf("client %d has two attempts on their way", c.n)
			case !w.confirmed[w.names.Channel] || c.Named() && !w.confirmed[c.Wake]:
				w.t.Fatalf("client %d asks before its subscription is confirmed", c.n)
			}
			c.asking = true
			w.attempts = append(w.attempts, c)
		case Finish:
			c := e.Waiter.Tag.(*client)
			if c.outcome != NoOutcome || e.Outcome == NoOutcome {
				w.t.Fatalf("client %d gets %d after %d", c.n, e.Outcome, c.outcome)
			}
			c.outcome = e.Outcome
		case Subscribe:
			w.wanted = append(w.wanted, e.Channel)
		case Unsubscribe:
			w.wanted = slices.DeleteFunc(w.wanted, func(channel string) bool { return channel == e.Channel })
			delete(w.confirmed, e.Channel)
		case SetTimer:
			w.timers[e.Timer] = true
		case StopTimers:
			clear(w.timers)
		case Patience:
			w.patience = true
		case RemovePlaces:
			w.leaving = true
		case Refresh:
			w.places = append(w.places, e.Places)
		case ListPlaces:
			w.listing = true
		case AskHead:
			w.heads = append(w.heads, e.Look)
		case RemoveHead:
			w.t.Fatalf("the head %s is ours, or alive", e.Place)
		case GoOn:
			w.goOn = true
		case Tidy:
		default:
			w.t.Fatalf("effect %d is about no waiter", e.Op)
		}
	}
	w.s.Done(effects)
}

// progress does one thing that is on its way, by its number, and reports whether there was any. Timers are none.
func (w *world) progress(pick int) bool {
	w.t.Helper()
	var can []func()
	if n := len(w.wanted); n > 0 {
		can = append(can, func() {
			channel := w.wanted[pick%n]
			w.wanted = slices.Delete(w.wanted, pick%n, pick%n+1)
			w.confirmed[channel] = true
			w.s.Subscribed(channel)
			w.effects()
		})
	}
	if len(w.messages) > 0 {
		can = append(can, func() {
			channel := w.messages[0]
			w.messages = w.messages[1:]
			if w.confirmed[channel] {
				w.s.Published(channel)
				w.effects()
			}
		})
	}
	if n := len(w.attempts); n > 0 {
		can = append(can, func() {
			c := w.attempts[pick%n]
			w.attempts = slices.Delete(w.attempts, pick%n, pick%n+1)
			w.answer(c, w.script(c, c.turn))
		})
	}
	if w.leaving {
		can = append(can, func() {
			w.leaving = false
			free := w.holder == "" && len(w.queue) > 0
			head := ""
			if free {
				head = w.queue[0]
			}
			for _, place := range w.s.Departing(w.names.Key) {
				if slices.Contains(w.queue, place) { // a waiter of that owner elsewhere has lost its place
					w.messages = append(w.messages, "c:"+place)
				}
				w.queue = slices.DeleteFunc(w.queue, func(p string) bool { return p == place })
			}
			if free && len(w.queue) > 0 && w.queue[0] != head { // leave wakes the next
				w.wakeHead()
			} else if free && len(w.queue) == 0 {
				w.messages = append(w.messages, w.names.Channel)
			}
			w.s.Departed(w.names.Key)
			w.effects()
		})
	}
	if len(w.places) > 0 {
		can = append(can, func() {
			lost := slices.ContainsFunc(w.places[0], func(p string) bool { return !slices.Contains(w.queue, p) })
			w.places = w.places[1:]
			if q := w.s.Queue(w.names.Key); q != nil {
				q.Refreshed(lost)
				w.effects()
			}
		})
	}
	if w.listing {
		can = append(can, func() {
			w.listing = false
			if q := w.s.Queue(w.names.Key); q != nil {
				q.PlacesListed(w.queue, OK)
				w.effects()
			}
		})
	}
	if len(w.heads) > 0 {
		can = append(can, func() {
			look := w.heads[0]
			w.heads = w.heads[1:]
			head := ""
			if len(w.queue) > 0 {
				head = w.queue[0]
			}
			if q := w.s.Queue(w.names.Key); q != nil {
				q.HeadTold(look, head, OK)
				w.effects()
			}
		})
	}
	if w.goOn {
		can = append(can, func() {
			w.goOn = false
			w.s.GoOn()
			w.effects()
		})
	}
	if len(can) == 0 {
		return false
	}
	can[pick%len(can)]()
	return true
}

// settle lets everything happen that is on its way.
func (w *world) settle() {
	w.t.Helper()
	for n := 0; w.progress(n * 7); n++ {
		if n > 1_000_000 {
			w.t.Fatalf("there is no end")
		}
	}
}

// drain releases the lock until nobody waits.
func (w *world) drain() {
	w.t.Helper()
	for n := 0; ; n++ {
		w.settle()
		switch {
		case w.s.Queue(w.names.Key) == nil && w.holder == "":
			if len(w.s.Queues()) != 0 || w.s.Leaving() != 0 || w.s.Waiters() != 0 {
				w.t.Fatalf("%d queues, %d departures, %d waiters are left", len(w.s.Queues()), w.s.Leaving(), w.s.Waiters())
			}
			for name, c := range w.s.channels.byName {
				if c.refs != 0 {
					w.t.Fatalf("%d listen to %s", c.refs, name)
				}
			}
			return
		case w.holder == "" && w.faulty && n < 10_000: // then the timers help
			for timer := range w.timers {
				w.s.Queue("k").TimerDue(timer)
				w.effects()
				break
			}
		case w.holder == "" && w.s.Waiters() == 0 && w.timers[lingerOver]: // it lingers: the reaper comes to its look, which ends that
			if w.timers[lookDue] {
				delete(w.timers, lookDue)
				w.s.Queue("k").TimerDue(lookDue)
			} else {
				delete(w.timers, lingerOver)
				w.s.Queue("k").TimerDue(lingerOver)
			}
			w.effects()
		case w.holder == "":
			w.t.Fatalf("the lock is free, and nobody asks; in Redis wait %v", w.queue)
		default:
			w.release(n%2 == 0)
		}
	}
}
