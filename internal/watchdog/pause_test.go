package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPauseDoesNotWaitIfNothingIsOnItsWay(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		pass(time.Second)
		if l.Pause(func() { t.Error("then has run") }) {
			t.Error("waits for nothing")
		}
		pass(20 * time.Second)
		b.wantTimes(t) // paused: nothing is renewed
		l.Continue()
		synctest.Wait()
		b.wantTimes(t, 21*time.Second) // overdue: at once
		b.wantLosses(t)
	})
}

func TestPauseWaitsForTheAnswerOnItsWay(t *testing.T) {
	for name, outcome := range map[string]func(context.Context, Group, []Renewal) ([]Verdict, error){
		"renewed": allRenewed, "gone": allGone, "error": down,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, b *bench) {
				b.setAnswer(slowly(3*time.Second, outcome))
				l := b.Track(entry("k"), time.Now())
				pass(11 * time.Second)
				ran := make(chan time.Duration, 2)
				l.Pause(func() { ran <- time.Since(b.start) })
				pass(time.Second)
				if len(ran) != 0 {
					t.Fatal("then ran while a renewal was on its way")
				}
				pass(10 * time.Second)
				if len(ran) != 1 {
					t.Fatalf("then ran %d times, want once", len(ran))
				}
				if got, want := <-ran, 13*time.Second; got != want {
					t.Errorf("then ran at %v, want %v", got, want)
				}
				b.wantTimes(t, 10*time.Second) // neither a renewal nor a retry during the pause
				l.Forget()
			})
		})
	}
}

func TestPauseEndsWithTheTimeLimitOfAHangingRenewal(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(hangs)
		l := b.Track(entry("k"), time.Now())
		pass(15 * time.Second)
		ran := make(chan time.Duration, 2)
		l.Pause(func() { ran <- time.Since(b.start) })
		pass(10 * time.Second)
		if len(ran) != 1 {
			t.Fatalf("then ran %d times, want once", len(ran))
		}
		if got, want := <-ran, 20*time.Second; got != want { // half of what was left at 10 s
			t.Errorf("then ran at %v, want %v", got, want)
		}
	})
}

func TestPausedLeaseIsStillLostAtItsDeadline(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		l.Pause(func() {})
		pass(time.Minute)
		b.wantTimes(t)
		b.wantLosses(t, "k deadline 30s")
		if l.Resume(time.Now(), entry("k")) || !l.Over() {
			t.Error("Resume revived a lost lease")
		}
	})
}

func TestLostLeaseIsTrackedAgain(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(func(ctx context.Context, _ Group, _ []Renewal) ([]Verdict, error) {
			time.Sleep(12 * time.Second)
			return []Verdict{Gone}, nil
		})
		short := entry("k")
		short.TTL = 9 * time.Second
		l := b.Track(short, time.Now())
		pass(10 * time.Second) // the renewal is on its way
		b.wantLosses(t, "k deadline 9s")
		b.Watchdog.Track(l, entry("k"), time.Now())
		pass(9 * time.Second)
		b.wantLosses(t, "k deadline 9s") // its answer is about the lease that was lost
		if l.Over() {
			t.Error("the lease is not watched")
		}
		b.wantDeadline(t, l, 40*time.Second)
	})
}

func TestResumeCountsFromTheNewSending(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		pass(5 * time.Second)
		l.Pause(func() {})
		sent := time.Now()
		pass(2 * time.Second)
		e := entry("k")
		e.TTL, e.Group = 15*time.Second, Group{By: "other"}
		if !l.Resume(sent, e) {
			t.Fatal("Resume of a live lease failed")
		}
		b.wantDeadline(t, l, 20*time.Second)
		pass(4 * time.Second)
		b.wantTimes(t, 10*time.Second)
		if got := b.calls[0].Group; got.By != "other" {
			t.Errorf("renewed in group %v, want other", got)
		}
		if got, want := len(b.groups), 1; got != want {
			t.Errorf("%d groups, want %d", got, want)
		}
	})
}

func TestResumeTurnsAFixedLeaseIntoARenewedOneAndBack(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		fixed := entry("k")
		fixed.Fixed = true
		l := b.Track(fixed, time.Now())
		pass(15 * time.Second)
		l.Pause(func() {})
		l.Resume(time.Now(), entry("k"))
		pass(11 * time.Second)
		b.wantTimes(t, 25*time.Second)
		l.Pause(func() {})
		l.Resume(time.Now(), fixed)
		pass(time.Minute)
		b.wantTimes(t, 25*time.Second)
		b.wantLosses(t, "k expired 56s")
	})
}

func TestOverlappingPausesEndTogether(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		l.Pause(func() {})
		l.Pause(func() {})
		pass(5 * time.Second)
		l.Resume(time.Now(), entry("k"))
		pass(15 * time.Second)
		b.wantTimes(t)
		l.Resume(time.Now(), entry("k"))
		pass(15 * time.Second)
		b.wantTimes(t, 30*time.Second)
	})
}

func TestPauseStopsARenewalThatWaitsForThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := make(chan func(), 2)
		b := newBench(t, Options{Submit: func(job func()) { jobs <- job }})
		l := b.Track(entry("k"), time.Now())
		f := b.Track(entry("f"), time.Now())
		pass(11 * time.Second) // the job has been accepted and not begun
		if l.Pause(func() { t.Error("then has run") }) {
			t.Error("waits for a renewal that has not begun")
		}
		f.Forget()
		(<-jobs)()
		b.wantTimes(t)
		l.Continue()
		synctest.Wait()
		(<-jobs)()
		b.wantTimes(t, 11*time.Second)
	})
}

func TestAnswerToAReplacedEntryIsIgnored(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(slowly(3*time.Second, allGone))
		l := b.Track(entry("k"), time.Now())
		pass(11 * time.Second)
		b.setAnswer(nil)
		l.Resume(time.Now(), entry("k")) // without Pause: the answer may speak of the old grant
		ran := make(chan struct{}, 2)
		l.Pause(func() { ran <- struct{}{} })
		if len(ran) != 0 {
			t.Fatal("then ran while a renewal was on its way")
		}
		pass(3 * time.Second)
		if len(ran) != 1 {
			t.Fatalf("then ran %d times, want once", len(ran))
		}
		l.Continue()
		pass(11 * time.Second)
		b.wantLosses(t)
		b.wantTimes(t, 10*time.Second, 21*time.Second)
	})
}

func TestAShortenedLeaseIsRenewedByItsLength(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		l.Pause(nil)
		pass(2 * time.Second)
		l.Shorten(time.Now(), 6*time.Second)
		l.Shorten(time.Now(), time.Minute) // no longer one
		b.wantDeadline(t, l, 8*time.Second)
		pass(3 * time.Second)
		l.Continue()
		pass(3 * time.Second)
		b.wantTimes(t, 5*time.Second, 7*time.Second)
		if got, want := b.calls[0].TTL, 6*time.Second; got != want {
			t.Errorf("the renewal asks for %v, want %v", got, want)
		}
		b.setAnswer(down)
		pass(time.Minute)
		b.wantLosses(t, "k deadline 13s")
		l.Shorten(time.Now(), time.Second) // of a lost lease: nothing
	})
}

func TestAShortenedLeaseEndsWhilePaused(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		l.Pause(nil)
		pass(2 * time.Second)
		l.Shorten(b.start.Add(time.Second), 500*time.Millisecond) // has passed
		synctest.Wait()
		b.wantLosses(t, "k deadline 2s")
	})
}

// A lease that was set behind the command that may make it shorter: the command is executed later still, if it is
// executed.
func TestALeaseIsShortenedFromTheMomentAtWhichItWasSet(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		l := b.Track(entry("k"), time.Now())
		pass(11 * time.Second) // renewed at 10 s
		l.Shorten(b.start, 5*time.Second)
		b.wantDeadline(t, l, 15*time.Second)
		pass(9 * time.Second)
		b.wantLosses(t)
	})
}

func TestARenewalOnItsWayGivesAShortenedLeaseNoMore(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(slowly(2*time.Second, allRenewed))
		l := b.Track(entry("k"), time.Now())
		pass(11 * time.Second)
		l.Shorten(time.Now(), 6*time.Second)
		pass(1500 * time.Millisecond)
		b.wantDeadline(t, l, 16*time.Second)
	})
}
