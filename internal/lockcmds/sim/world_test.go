package sim

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// world is one history: virtual time, and all that happens in it, on one loop.
type world struct {
	now    time.Duration // since epoch
	seq    int           // of events, so that those of one instant keep their order
	events eventHeap
	steps  int
	chance *rand.Rand // latencies and jitter
	over   bool       // the history has ended: nothing happens any more

	touched   bool // somebody outside has spoken to an engine in this step
	current   *coroutine
	suspended []*coroutine

	shape     int // how the servers are arranged
	servers   []*server
	slots     []hashSlot
	moving    bool          // servers are changing their parts
	settledAt time.Duration // all proxies know of the latest change
	lag       time.Duration // what a replica is behind, at most, beside the way
	strict    bool          // the servers refuse more while a slot moves: Redis from 7.2 on
	stepped   time.Duration // what Redis's clock is ahead of the world's
	proxies   []*proxy      // those that run; a killed one is replaced
	born      int           // proxies so far
	clients   []*client     // by slot
	all       []*client     // also those that have ended
	ids       uint64

	calm     bool          // there are no faults
	smooth   bool          // servers change their parts as planned, and that is all
	slowSub  time.Duration // as in plan
	slowOwn  time.Duration
	repeats  time.Duration
	again    *rand.Rand // messages that come twice
	quiet    bool       // the time of faults is over
	rules    *rules
	permits  *permits // the rules of a lock of permits; nil: nobody asks for it
	keep     bool     // lines
	lines    []string
	calls    []call // if lines are kept
	broken   string // the rule that was broken, and how; empty: none
	brokenAt time.Duration
}

// epoch is far from any real time, so that a clock of the machine that is read by mistake shows.
var epoch = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// sinceUnix is the time from 1970 to the epoch.
var sinceUnix = time.Duration(epoch.UnixNano())

type event struct {
	at    time.Duration
	seq   int
	f     func()
	owner *proxy // whose event it is: it does not happen after its death, and not while it is paused. nil: nobody's
	dead  bool   // cancelled
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(*event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

// in has f happen when d has passed.
func (w *world) in(d time.Duration, owner *proxy, f func()) *event {
	w.seq++
	e := &event{at: w.now + max(0, d), seq: w.seq, f: f, owner: owner}
	if !w.over {
		heap.Push(&w.events, e)
	}
	return e
}

// ms is the time, as a server without a clock of its own tells it.
func (w *world) ms() int64 { return (sinceUnix + w.now + w.stepped).Milliseconds() }

// step lets the next event happen. It returns false if there is none until limit.
func (w *world) step(limit time.Duration) bool {
	for len(w.events) > 0 {
		e := w.events[0]
		if e.at > limit {
			break
		}
		heap.Pop(&w.events)
		switch {
		case e.dead, e.owner != nil && e.owner.killed:
			continue
		case e.owner != nil && e.owner.pausedUntil > e.at:
			e.at = e.owner.pausedUntil
			heap.Push(&w.events, e)
			continue
		}
		w.now = e.at
		w.steps++
		e.f()
		for _, p := range w.proxies {
			if w.touched || p == e.owner || p.due <= w.now {
				p.watch()
			}
		}
		w.touched = false
		w.rules.check()
		return true
	}
	w.now = max(w.now, limit)
	return false
}

// run lets time pass until that instant, or a rule is broken.
func (w *world) run(until time.Duration) {
	for w.broken == "" && w.step(until) {
		if w.steps > 200_000 {
			w.fail("busy loop", "%d events", w.steps)
		}
	}
}

// fail notes the first rule that was broken.
func (w *world) fail(rule, format string, args ...any) {
	if w.broken != "" || w.over {
		return
	}
	w.broken = rule + ": " + w.short(fmt.Sprintf(format, args...))
	w.brokenAt = w.now
	w.note("*** %s", w.broken)
}

func (w *world) note(format string, args ...any) {
	if w.keep && !w.over {
		w.lines = append(w.lines, fmt.Sprintf("%12s  %s", w.now.Round(time.Microsecond), w.short(fmt.Sprintf(format, args...))))
	}
}

// short replaces the names of proxies by shorter ones.
func (w *world) short(s string) string {
	for n := 1; n <= w.born; n++ {
		s = strings.ReplaceAll(s, uuidOf(n), fmt.Sprintf("p%d", n))
	}
	return s
}

func uuidOf(n int) string {
	for len(uuids) <= n {
		uuids = append(uuids, fmt.Sprintf("00000000-0000-4000-8000-%012d", len(uuids)))
	}
	return uuids[n]
}

// uuids are those of the proxies of all histories.
var uuids []string

// Now, AfterFunc and Random make a jobs.Clock of a proxy.
type proxyClock struct{ p *proxy }

func (c proxyClock) Now() time.Time {
	return epoch.Add(c.p.w.now)
}

func (c proxyClock) AfterFunc(d time.Duration, f func()) jobs.Timer {
	return &timer{c.p, c.p.w.in(d, c.p, f)}
}

func (c proxyClock) Random(n time.Duration) time.Duration {
	return time.Duration(c.p.w.chance.Int64N(int64(n)))
}

type timer struct {
	p *proxy
	*event
}

func (t *timer) Stop() bool {
	was := !t.dead
	t.dead = true
	return was
}

func (t *timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.event = t.p.w.in(d, t.p, t.f)
	return was
}

// tasks makes a jobs.Source and jobs.Runner of a proxy: each task is a coroutine. It is suspended while it waits for
// Redis.
type tasks struct{ p *proxy }

func (t tasks) NewRunner(func(any)) jobs.Runner { return t }

func (t tasks) Submit(_ jobs.Class, task func()) {
	w := t.p.w
	w.in(w.latency()/10, t.p, func() { w.start(task) })
}

func (t tasks) After(d time.Duration, c jobs.Class, task func()) jobs.Timer {
	return &timer{t.p, t.p.w.in(d, t.p, func() { t.Submit(c, task) })}
}

func (tasks) Wait(context.Context) {}

// coroutine runs one task after the other. It is used again in later histories.
type coroutine struct {
	next  func() (struct{}, bool)
	yield func(struct{}) bool
	task  func()
}

// idle are the coroutines without a task.
var idle []*coroutine

func (w *world) start(task func()) {
	var c *coroutine
	if n := len(idle); n > 0 {
		c, idle = idle[n-1], idle[:n-1]
	} else {
		c = &coroutine{}
		c.next, _ = iter.Pull(func(yield func(struct{}) bool) {
			c.yield = yield
			for ok := true; ok; ok = yield(struct{}{}) {
				c.task()
				c.task = nil
			}
		})
	}
	c.task = task
	w.resume(c)
}

// resume lets a coroutine go on until it waits again or its task has ended.
func (w *world) resume(c *coroutine) {
	before := w.current
	w.current = c
	c.next()
	w.current = before
	if c.task == nil {
		idle = append(idle, c)
	}
}

// waiting is a coroutine that waits for the outcome of a request.
type waiting struct {
	w     *world
	c     *coroutine
	ended bool
	v     resp.Value
	err   error
	limit *event // ends it in doubt
}

// await prepares the current coroutine to be suspended. Its caller sends a request with that outcome.
func (w *world) await() *waiting {
	c := w.current
	if c == nil {
		panic("a caller that must not block waits for Redis")
	}
	w.suspended = append(w.suspended, c)
	return &waiting{w: w, c: c, err: redislink.ErrUnsent} // if the history ends first
}

// outcome suspends the coroutine until the outcome is there.
func (a *waiting) outcome() (resp.Value, error) {
	a.c.yield(struct{}{})
	return a.v, a.err
}

func (a *waiting) waits() bool { return !a.ended }

func (a *waiting) done(v resp.Value, err error) {
	w := a.w
	if a.ended {
		return
	}
	a.ended, a.v, a.err = true, v, err
	a.limit.dead = true
	if w.over {
		return
	}
	if i := slices.Index(w.suspended, a.c); i >= 0 {
		w.suspended = slices.Delete(w.suspended, i, i+1)
	}
	w.resume(a.c)
}

// end lets all coroutines come to their end; Redis does not answer any more.
func (w *world) end() {
	w.over = true
	w.events = nil
	for len(w.suspended) > 0 {
		c := w.suspended[0]
		w.suspended = w.suspended[1:]
		w.resume(c)
	}
	for _, p := range w.proxies {
		p.stop()
	}
}

// upTo is a part of d by chance; 0 if d is.
func (w *world) upTo(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return time.Duration(w.chance.Int64N(int64(d)))
}

// latency is how long something takes on its way: mostly a part of a millisecond.
func (w *world) latency() time.Duration {
	n := w.chance.Uint64()
	d := time.Duration(20+n%400) * time.Microsecond
	switch n >> 60 {
	case 0:
		d += time.Duration(n>>20%20) * time.Millisecond
	case 1:
		d /= 10
	}
	return d
}
