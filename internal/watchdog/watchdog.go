// Package watchdog keeps leases alive while their holders live, and reports each loss once. It knows nothing of
// Redis or of sessions: a RenewFunc does the round trip, and OnLost is told of a loss.
//
//	Track, Resume ──► heap of leases by what is due next ◄── Pause, Shorten, Forget
//	                        │ Run or Step: one scheduler for all
//	        past deadline ──┴── renewal due
//	              │                  │ queue of its group: the first to end is the next
//	            OnLost               ▼
//	              ▲        jobs on the caller's pool: take ≤ batchSize ──► Renew ──► settle
//	              └────── gone ◄──────────────────────────────────────────────────────┘ renewed, or an error:
//	                                                                                     back into the heap
//
// A renewable lease is renewed every third of its TTL, or as often as Entry.Kept says; of a fixed one the rest is set
// again. An answer "not yours" loses it at once. An error is not a loss: the renewal is tried again every second (every
// tenth of a shorter TTL) until the lease's own deadline.
//
// Goroutines: Run is the scheduler and is the caller's. Renewal jobs run on the caller's pool, at most groupJobs per
// group, each one batch after the other until its group has nothing due; Run returns after the last of them.
//
// Invariants:
//   - deadline = instant before the last acquire or successful renewal was sent + TTL, on the monotonic clock; less if
//     Shorten says so. The lease cannot have ended in Redis before it.
//   - No renewal is sent at or after the deadline, nor begun after Pause or Forget has returned.
//   - OnLost is called at most once per lease, and never for one whose Forget returned true.
//   - Every lease is in the heap until it is lost or forgotten, also while its renewal waits or is on its way, so a
//     slow group delays neither its own verdicts by deadline nor anything of another group.
//
// The monotonic clock of Linux stands still while the machine sleeps. A lease that ended meanwhile is found out by the
// first renewal, because the renewal compares owner and fence.
package watchdog

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// renewalsPerTTL: a lease survives two missed renewals, as with Redisson's watchdog.
	renewalsPerTTL = 3
	// A renewal may be sent this part of the time between two early (100 ms of a lease of 30 s), so that leases due close
	// to each other share a batch. It costs one per cent more renewals and makes batches full from about 10,000 leases
	// on. It is no part of the TTL: a lease of an hour may be set again every ten seconds.
	earlyPart = 100
	// sliceSize bounds how many leases are dealt with while the mutex is held once.
	sliceSize = 1000
	never     = time.Duration(math.MaxInt64)
)

// Entry describes a lease to the watchdog.
type Entry struct {
	Of    any           // what the lease is of: the caller's
	TTL   time.Duration // the lease's length from the moment it is acquired or renewed
	Until time.Time     // renewals are cut so that the lease ends by then (plus one transit); zero: no limit
	Fixed bool          // never renewed, only watched until its deadline
	// Kept is how often the lease is set again in any case, because other holders of the lock may cut it short: of a fixed
	// one the rest. 0: no other holder does.
	Kept  time.Duration
	Group Group
}

// Group is the leases that are renewed in the same batches. Groups do not hold each other up. The values are the
// caller's, and comparable.
type Group struct{ By, Kind any }

// Renewal is one lease of a batch. TTL is at least a millisecond and already cut to Entry.Until.
type Renewal struct {
	Of  any // as in Entry
	TTL time.Duration
}

// Verdict is Redis's word on one renewal.
type Verdict int

// Verdicts. The zero value is none of them, so that a forgotten answer cannot pass for a renewal.
const (
	Renewed Verdict = iota + 1 // the lease now ends TTL after the renewal was executed
	Gone                       // the key is not this owner's under this fence any more
)

// RenewFunc renews the leases of one batch in one round trip and returns a verdict for each, in order. It blocks until
// the answer, an error, or the end of ctx, which comes no later than the first deadline of the batch. An error concerns
// the whole batch. Leases whose verdict is 0, or all after an error, are tried again. The batch is valid only during the
// call.
type RenewFunc func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error)

// Round says how the renewals of a batch have ended.
type Round struct {
	Done, Gone, Failed int
	Late               int           // of Done: less than a third of the lease was left
	Margin             time.Duration // the least time that a lease of Done had left
}

// Reason says why a lease was lost.
type Reason string

// Reasons.
const (
	ReasonGone     Reason = "gone"     // Redis says it is not ours
	ReasonDeadline Reason = "deadline" // no renewal succeeded in time
	ReasonExpired  Reason = "expired"  // a fixed lease ran out
	ReasonMaxHold  Reason = "max-hold" // Entry.Until is reached
)

// Options configure a Watchdog. Renew and Submit are required; zero values pick the defaults.
type Options struct {
	Renew RenewFunc
	// Submit hands a job to a pool, which runs it in any case. It must not block.
	Submit func(job func())
	// OnLost is told of a lost lease by its Entry.Of. It is called from Run or from a job, holds no lock of this package
	// and must not block. nil: losses are not reported.
	OnLost func(of any, why Reason)
	// Renewed is told of each batch. It holds no lock of this package and must not block. nil: it is not told.
	Renewed func(Round)
	Logger  *zap.Logger // nil: silent
	// Now tells the time, with a monotonic reading unless it is a test's. nil: time.Now.
	Now func() time.Time

	// Tests change these.
	retryEvery time.Duration // after an error; 0: 1 s; a tenth of the TTL if that is less
	batchSize  int           // 0: 100
	groupJobs  int           // jobs of one group at a time, so that one stuck group cannot fill the pool; 0: 4
}

// Watchdog renews tracked leases while Run runs.
type Watchdog struct {
	opts Options       // immutable after New
	base time.Time     // immutable; every instant below is a Duration since base
	wake chan struct{} // size 1, never closed: something is due before Run's timer

	losses []loss   // reused by step, which alone uses it
	starts []*group // the same

	jobs sync.WaitGroup // jobs handed to the pool

	mu     sync.Mutex // guards the fields below and all mutable fields of leases and groups; never held in a callback
	heap   heap
	groups map[Group]*group
	armed  time.Duration // Run's timer; an earlier event must wake it; 0 until Run sleeps for the first time
}

// New checks the options. It starts nothing.
func New(opts Options) (*Watchdog, error) {
	switch {
	case opts.Renew == nil:
		return nil, errors.New("watchdog: no Renew")
	case opts.Submit == nil:
		return nil, errors.New("watchdog: no Submit")
	case opts.retryEvery < 0, opts.batchSize < 0, opts.groupJobs < 0:
		return nil, errors.New("watchdog: negative option")
	}
	if opts.OnLost == nil {
		opts.OnLost = func(any, Reason) {}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.retryEvery == 0 {
		opts.retryEvery = time.Second
	}
	if opts.batchSize == 0 {
		opts.batchSize = 100
	}
	if opts.groupJobs == 0 {
		opts.groupJobs = 4
	}
	w := &Watchdog{
		opts: opts, base: opts.Now(), wake: make(chan struct{}, 1), groups: make(map[Group]*group),
	}
	return w, nil
}

// Run schedules renewals until ctx ends, then waits for those on their way and returns nil. Call it once. Leases are
// neither renewed nor watched afterwards.
func (w *Watchdog) Run(ctx context.Context) error {
	defer w.jobs.Wait()
	timer := time.NewTimer(never)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := w.step(ctx)
		timer.Reset(max(0, next-w.now())) // only now: the callbacks and the pool may have taken their time
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// Step is one turn of Run, for a caller that drives the watchdog by a clock of its own: losses are reported, and the
// renewals that are due are handed to the pool. It returns when the next step is due; false: no lease is watched. Step
// and Run exclude each other.
func (w *Watchdog) Step(ctx context.Context) (due time.Time, ok bool) {
	w.step(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heap) == 0 {
		return time.Time{}, false
	}
	return w.base.Add(w.heap[0].due), true
}

// step carries out everything that is due, and returns when the next thing is due.
func (w *Watchdog) step(ctx context.Context) (next time.Duration) {
	w.mu.Lock()
	losses, starts, more := w.collectLocked(w.losses[:0], w.starts[:0])
	w.armed = never
	if len(w.heap) > 0 {
		w.armed = w.heap[0].due
	}
	next = w.armed
	w.mu.Unlock()

	w.report(losses)
	for _, g := range starts {
		w.jobs.Add(1)
		w.opts.Submit(func() {
			defer w.jobs.Done()
			w.serve(ctx, g)
		})
	}
	clear(losses)
	clear(starts)
	w.losses, w.starts = losses, starts
	if more {
		return w.now()
	}
	return next
}

// Len is the number of leases that are watched.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.heap)
}

// collectLocked takes the leases that are due from the heap: leases past their deadline are lost, renewals join their
// group's queue and stay in the heap under their deadline. It appends the losses, and the group of each job that is to
// be started. It takes sliceSize of them at the most: others wait for the mutex. more says that it is to be called
// again at once.
func (w *Watchdog) collectLocked(losses []loss, starts []*group) (_ []loss, _ []*group, more bool) {
	now := w.now()
	for n := 0; len(w.heap) > 0; n++ {
		if n == sliceSize {
			return losses, starts, true
		}
		l := w.heap[0].lease
		switch {
		case now >= l.deadline:
			losses = append(losses, l.loseLocked(l.endReason()))
		case l.renewableLocked() && now >= l.next-l.every/earlyPart:
			l.renewal = queued
			w.heap.fix(l, l.deadline)
			g := l.group
			g.ready.push(l)
			if g.jobs < w.opts.groupJobs && len(g.ready) > g.jobs*w.opts.batchSize {
				g.jobs++
				starts = append(starts, g)
			}
		default:
			return losses, starts, false
		}
	}
	return losses, starts, false
}

func (w *Watchdog) report(losses []loss) {
	for _, l := range losses {
		w.opts.OnLost(l.of, l.reason)
	}
}

func (w *Watchdog) now() time.Duration { return w.opts.Now().Sub(w.base) }

// wakeLocked wakes Run if the instant comes before its timer.
func (w *Watchdog) wakeLocked(due time.Duration) {
	if due >= w.armed {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}
