package watchdog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	diffs "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const lease = 30 * time.Second

var errDown = errors.New("redis is down")

// bench is a watchdog in a synctest bubble with everything it says and does written down.
type bench struct {
	*Watchdog
	start time.Time

	mu     sync.Mutex
	calls  []call
	losses []string // "key reason at"
	answer RenewFunc
}

type call struct {
	At    time.Duration
	Group Group
	Keys  []string
	TTL   time.Duration // of the first renewal
}

// newBench runs a watchdog until the test ends; every renewal succeeds until answer is set.
func newBench(t *testing.T, opts Options) *bench {
	t.Helper()
	b := &bench{start: time.Now()}
	opts.Renew = b.renew
	opts.OnLost = b.lost
	if opts.Submit == nil {
		opts.Submit = func(job func()) { go job() }
	}
	w, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	b.Watchdog = w
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

// play runs a test of a watchdog with the defaults in a bubble.
func play(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, Options{})) })
}

func (b *bench) renew(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
	c := call{At: time.Since(b.start), Group: group, TTL: batch[0].TTL}
	for _, r := range batch {
		c.Keys = append(c.Keys, r.Of.(string))
	}
	b.mu.Lock()
	b.calls = append(b.calls, c)
	answer := b.answer
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, group, batch)
	}
	return allRenewed(ctx, group, batch)
}

func allRenewed(_ context.Context, _ Group, batch []Renewal) ([]Verdict, error) {
	v := make([]Verdict, len(batch))
	for i := range v {
		v[i] = Renewed
	}
	return v, nil
}

func allGone(_ context.Context, _ Group, batch []Renewal) ([]Verdict, error) {
	v := make([]Verdict, len(batch))
	for i := range v {
		v[i] = Gone
	}
	return v, nil
}

// hangs answers when the attempt is given up.
func hangs(ctx context.Context, _ Group, _ []Renewal) ([]Verdict, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// slowly answers later.
func slowly(d time.Duration, answer RenewFunc) RenewFunc {
	return func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
		time.Sleep(d)
		return answer(ctx, group, batch)
	}
}

func down(context.Context, Group, []Renewal) ([]Verdict, error) { return nil, errDown }

// track watches a new lease.
func track(w *Watchdog, e Entry, sentAt time.Time) *Lease {
	l := &Lease{}
	w.Track(l, e, sentAt)
	return l
}

// Track watches a new lease.
func (b *bench) Track(e Entry, sentAt time.Time) *Lease { return track(b.Watchdog, e, sentAt) }

func (b *bench) lost(of any, r Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.losses = append(b.losses, fmt.Sprintf("%s %s %v", of, r, time.Since(b.start)))
}

func (b *bench) setAnswer(f RenewFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// times are the instants of the calls so far.
func (b *bench) times() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var at []time.Duration
	for _, c := range b.calls {
		at = append(at, c.At)
	}
	return at
}

func (b *bench) wantTimes(t *testing.T, want ...time.Duration) {
	t.Helper()
	if diff := diffs.Diff(want, b.times()); diff != "" {
		t.Errorf("renewals at (-want +got):\n%s", diff)
	}
}

func (b *bench) wantDeadline(t *testing.T, l *Lease, want time.Duration) {
	t.Helper()
	if got := l.Deadline().Sub(b.start); got != want {
		t.Errorf("deadline at %v, want %v", got, want)
	}
}

func (b *bench) wantLen(t *testing.T, want int) {
	t.Helper()
	if got := b.Len(); got != want {
		t.Errorf("%d leases are watched, want %d", got, want)
	}
}

func (b *bench) wantLosses(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := diffs.Diff(want, b.losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

func entry(key string) Entry {
	return Entry{Of: key, TTL: lease, Group: Group{By: "g"}}
}

// pass lets the bubble's time go by until everything that was due has been done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// seconds are the instants of each second from one to another.
func seconds(from, to int) (at []time.Duration) {
	for s := from; s <= to; s++ {
		at = append(at, time.Duration(s)*time.Second)
	}
	return at
}

// When one lease is renewed, and when it is lost.
func TestWhenALeaseIsRenewedAndLost(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, c := range map[string]struct {
		entry    Entry
		until    time.Duration // its MaxHold; 0: none
		late     time.Duration // it is watched so long after it was sent
		answer   RenewFunc     // nil: each renewal succeeds
		mends    time.Duration // then they succeed again; 0: they do not
		passes   time.Duration
		times    []time.Duration // of renewals
		last     time.Duration   // what the last one asks for; 0: the length of the lease
		deadline time.Duration   // 0: it is lost; -1: far away
		loss     string
	}{
		"every third": {passes: 45 * s, times: []time.Duration{10 * s, 20 * s, 30 * s, 40 * s}, deadline: 70 * s},
		"again each second after an error": {
			answer: down, mends: 13500 * ms, passes: 28500 * ms, times: append(seconds(10, 14), 24*s), deadline: 54 * s,
		},
		"a short one sooner": {
			entry: Entry{TTL: 600 * ms}, answer: down, mends: 250 * ms, passes: 300 * ms,
			times: []time.Duration{200 * ms, 260 * ms}, deadline: 860 * ms,
		},
		"errors until the deadline": {answer: down, passes: time.Minute, times: seconds(10, 29), loss: "deadline 30s"},
		"attempts that hang leave time for more": {
			answer: hangs, passes: time.Minute, loss: "deadline 30s",
			times: []time.Duration{10 * s, 20 * s, 25 * s, 27500 * ms, 28750 * ms, 29750 * ms},
		},
		"an answer that comes very late": {
			answer: slowly(19*s, allRenewed), passes: 29500 * ms, times: []time.Duration{10 * s, 29 * s}, deadline: 40 * s,
		},
		"Redis does not have it": {answer: allGone, passes: time.Minute, times: seconds(10, 10), loss: "gone 10s"},
		"fixed":                  {entry: Entry{Fixed: true}, passes: time.Minute, loss: "expired 30s"},
		"fixed for centuries":    {entry: Entry{Fixed: true, TTL: 1<<63 - 1}, passes: time.Minute, deadline: -1},
		"fixed, though others may cut it": {
			entry: Entry{Fixed: true, TTL: 25 * s, Kept: 10 * s}, passes: time.Minute,
			times: []time.Duration{10 * s, 20 * s}, last: 5 * s, loss: "expired 25s",
		},
		"for MAXHOLD": {
			until: 45 * s, passes: time.Minute, times: []time.Duration{10 * s, 20 * s}, last: 25 * s, loss: "max-hold 45s",
		},
		"not at all when its deadline is over": {late: time.Minute, loss: "deadline 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, b *bench) {
				e := c.entry
				e.Of, e.Group, e.TTL = "k", Group{By: "g"}, cmp.Or(e.TTL, lease)
				if c.until > 0 {
					e.Until = time.Now().Add(c.until)
				}
				b.setAnswer(c.answer)
				time.Sleep(c.late)
				l := b.Track(e, b.start)
				if c.mends > 0 {
					pass(c.mends)
					b.setAnswer(nil)
				}
				pass(c.passes - c.mends)
				b.wantTimes(t, c.times...)
				if n := len(b.calls); n > 0 && b.calls[n-1].TTL != cmp.Or(c.last, e.TTL) {
					t.Errorf("the last renewal asks for %v", b.calls[n-1].TTL)
				}
				if c.loss == "" {
					b.wantLosses(t)
					if b.wantLen(t, 1); c.deadline > 0 {
						b.wantDeadline(t, l, c.deadline)
					}
					return
				}
				b.wantLosses(t, "k "+c.loss)
				b.wantLen(t, 0)
				if l.Forget() || l.Resume(time.Now(), e) || l.Continue() {
					t.Error("a lost lease goes on")
				}
			})
		})
	}
}

func TestDeadlineCountsFromBeforeTheSending(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(slowly(4*time.Second, allRenewed))
		time.Sleep(3 * time.Second)
		l := b.Track(entry("k"), b.start) // the acquire took 3 s
		pass(8 * time.Second)             // 11 s: the renewal is on its way
		b.wantDeadline(t, l, 30*time.Second)
		pass(5 * time.Second)
		b.wantDeadline(t, l, 40*time.Second)
		pass(5 * time.Second)
		b.wantTimes(t, 10*time.Second, 20*time.Second)
	})
}

func TestGoneHitsOnlyItsOwnLease(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		for _, k := range []string{"a", "b", "c"} {
			b.Track(entry(k), time.Now())
		}
		b.setAnswer(func(_ context.Context, _ Group, batch []Renewal) ([]Verdict, error) {
			v := make([]Verdict, len(batch))
			for i, r := range batch {
				v[i] = Renewed
				if r.Of == "b" {
					v[i] = Gone
				}
			}
			return v, nil
		})
		pass(25 * time.Second)
		b.wantLosses(t, "b gone 10s")
		b.wantLen(t, 2)
	})
}

func TestForgottenLeaseIsLeftAlone(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		pass(9 * time.Second)
		if !l.Forget() {
			t.Error("Forget says a live lease was over")
		}
		pass(time.Minute)
		b.wantTimes(t)
		b.wantLosses(t)
	})
}

func TestForgetWhileARenewalIsOnItsWay(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(slowly(2*time.Second, allGone))
		l := b.Track(entry("k"), time.Now())
		pass(11 * time.Second)
		l.Forget()
		pass(time.Minute)
		b.wantTimes(t, 10*time.Second)
		b.wantLosses(t)
	})
}

func TestLateSchedulerRenewsNothingExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first submission holds up the scheduler, as a stopped process would be; its own job comes as late.
		stopped := false
		b := newBench(t, Options{Submit: func(job func()) {
			if !stopped {
				stopped = true
				time.Sleep(time.Minute)
			}
			go job()
		}})
		b.Track(entry("expired"), time.Now())
		later := entry("alive")
		later.TTL = 10 * time.Minute
		b.Track(later, time.Now())
		pass(5 * time.Minute)
		b.wantLosses(t, "expired deadline 1m10s")
		b.wantTimes(t, 200*time.Second)
	})
}

func TestRunEndsWithItsContextAndWaitsForJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := false
		w, err := New(Options{
			Renew: func(ctx context.Context, _ Group, _ []Renewal) ([]Verdict, error) {
				running = true
				<-ctx.Done()
				time.Sleep(time.Second)
				running = false
				return nil, ctx.Err()
			},
			Submit: func(job func()) { go job() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(11*time.Second, cancel)
		track(w, entry("k"), time.Now())
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if running {
			t.Error("Run has returned before its job")
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	submit := func(func()) {}
	for name, o := range map[string]Options{
		"no Renew":       {Submit: submit},
		"no Submit":      {Renew: allRenewed},
		"negative retry": {Renew: allRenewed, Submit: submit, retryEvery: -1},
		"negative batch": {Renew: allRenewed, Submit: submit, batchSize: -1},
		"negative jobs":  {Renew: allRenewed, Submit: submit, groupJobs: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLateAnswerToALostLeaseChangesNothing(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		release := make(chan struct{})
		b.setAnswer(func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
			<-release // also past the end of ctx
			return allGone(ctx, group, batch)
		})
		hung := b.Track(entry("hung"), time.Now())
		pass(time.Second)
		b.Track(entry("paused"), time.Now()).Pause(func() {})
		pass(31 * time.Second)
		b.wantLosses(t, "hung deadline 30s", "paused deadline 31s")
		ran := make(chan struct{}, 1)
		hung.Pause(func() { ran <- struct{}{} })
		if len(ran) != 0 {
			t.Error("then ran though the renewal of a lost lease is still on its way")
		}
		close(release)
		synctest.Wait()
		if len(ran) != 1 {
			t.Error("then has not run after the answer")
		}
		b.wantLosses(t, "hung deadline 30s", "paused deadline 31s")
	})
}

func TestJobThatComesPastTheDeadlineRenewsNothing(t *testing.T) {
	var jobs []func()
	w, err := New(Options{
		Renew: func(context.Context, Group, []Renewal) ([]Verdict, error) {
			t.Error("an expired lease was renewed")
			return nil, errDown
		},
		Submit: func(job func()) { jobs = append(jobs, job) },
	})
	if err != nil {
		t.Fatal(err)
	}
	track(w, entry("k"), time.Now())
	w.shift(lease / renewalsPerTTL)
	w.step(t.Context())
	if len(jobs) != 1 {
		t.Fatalf("%d jobs, want 1", len(jobs))
	}
	w.shift(lease)
	jobs[0]() // before the scheduler has looked
}

func TestLeasesThatEndTogetherAreDealtWithInSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost int
		w, err := New(Options{Renew: allRenewed, Submit: func(f func()) { go f() }, OnLost: func(any, Reason) { lost++ }})
		if err != nil {
			t.Fatal(err)
		}
		const many = 3*sliceSize + 1
		for range many {
			track(w, Entry{Of: "k", TTL: time.Second, Fixed: true}, time.Now())
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		first, _, more := w.collectLocked(nil, nil)
		w.mu.Unlock()
		if len(first) != sliceSize || !more {
			t.Errorf("%d of %d in one slice, more %v", len(first), many, more)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = w.Run(ctx); close(done) }()
		synctest.Wait() // the clock stands still: the other slices follow at once
		if lost != many-sliceSize {
			t.Errorf("%d of %d losses were told", lost, many-sliceSize)
		}
		cancel()
		<-done
	})
}

func TestStepDrivesLeasesOnAClockOfItsOwn(t *testing.T) {
	now := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	answer, renewed, lost := allRenewed, 0, 0
	w, err := New(Options{
		Now: func() time.Time { return now },
		Renew: func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
			renewed++
			return answer(ctx, group, batch)
		},
		Submit: func(job func()) { job() },
		OnLost: func(any, Reason) { lost++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Step(t.Context()); ok {
		t.Error("something is due without a lease")
	}
	track(w, entry("k"), now)
	for range 10 {
		due, ok := w.Step(t.Context())
		if want := now.Add(lease / renewalsPerTTL); !ok || !due.Equal(want) {
			t.Fatalf("due %v, want %v", due, want)
		}
		now = due
	}
	answer = down
	for range 1000 {
		if lost > 0 {
			break
		}
		due, ok := w.Step(t.Context())
		if !ok {
			break
		}
		now = due
	}
	if renewed < 20 || lost != 1 {
		t.Errorf("%d renewals and %d losses", renewed, lost)
	}
}
