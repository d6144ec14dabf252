package watchdog

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestRenewalsShareBatchesOfAtMostBatchSize(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		for i := range 250 {
			b.Track(entry(fmt.Sprint(i)), time.Now())
		}
		pass(15 * time.Second)
		seen := map[string]int{}
		for _, c := range b.calls {
			if len(c.Keys) > 100 {
				t.Errorf("batch of %d", len(c.Keys))
			}
			for _, k := range c.Keys {
				seen[k]++
			}
		}
		if len(b.calls) != 3 || len(seen) != 250 {
			t.Errorf("%d batches with %d locks, want 3 with 250", len(b.calls), len(seen))
		}
	})
}

// However long a lease is, and however often it is set again, the time between two renewals is the one that was asked
// for.
func TestNoLeaseIsRenewedWithoutEnd(t *testing.T) {
	for _, e := range []Entry{
		{TTL: time.Hour, Kept: 10 * time.Second},
		{TTL: time.Hour, Kept: 10 * time.Second, Fixed: true},
		{TTL: 3000 * time.Second, Kept: 10 * time.Second, Fixed: true},
		{TTL: 10 * time.Minute, Kept: 5 * time.Second / 3},
		{TTL: 10 * time.Minute, Kept: 5 * time.Second / 3, Fixed: true},
		{TTL: time.Hour},
		{TTL: 1 << 62, Kept: time.Second, Fixed: true},
		{TTL: 3 * time.Millisecond},
	} {
		every := e.Kept
		if third := e.TTL / 3; !e.Fixed && (every == 0 || third < every) {
			every = third
		}
		play(t, func(t *testing.T, b *bench) {
			e.Of, e.Group = "k", Group{By: "g"}
			b.Track(e, time.Now())
			const rounds = 20
			pass(rounds * every)
			if n := len(b.times()); n < rounds-1 || n > rounds+1 {
				t.Errorf("%+v: %d renewals in %d times %v", e, n, rounds, every)
			}
			b.wantLosses(t)
		})
	}
}

// A crowd of leases that fall due together, and that Redis takes seconds to renew, holds up no lease that ends before
// theirs.
func TestTheLeaseThatEndsFirstIsRenewedFirst(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		b.setAnswer(slowly(200*time.Millisecond, allRenewed))
		const crowd = 8000
		for i := range crowd {
			b.Track(entry(fmt.Sprint(i)), time.Now())
		}
		time.Sleep(9600 * time.Millisecond) // the crowd is due at 10 s
		for i := range 50 {
			e := entry(fmt.Sprint("short ", i))
			e.TTL = 1500 * time.Millisecond // due at 10.1 s, and over at 11.1 s
			b.Track(e, time.Now())
		}
		pass(10 * time.Second)
		b.wantLosses(t)
		b.wantLen(t, crowd+50)
	})
}

func TestRenewalsDueCloseToEachOtherShareABatch(t *testing.T) {
	play(t, func(t *testing.T, b *bench) {
		for i := range 50 {
			b.Track(entry(fmt.Sprint(i)), time.Now())
			time.Sleep(time.Millisecond)
		}
		pass(15 * time.Second)
		b.wantTimes(t, 10*time.Second)
	})
}

func TestARoundTellsHowItsRenewalsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds []Round
		b := newBench(t, Options{Renewed: func(r Round) { rounds = append(rounds, r) }})
		b.setAnswer(func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
			time.Sleep(3500 * time.Millisecond)
			verdicts, err := allRenewed(ctx, group, batch)
			for i, r := range batch {
				switch r.Of {
				case "gone":
					verdicts[i] = Gone
				case "refused":
					verdicts[i] = 0
				}
			}
			return verdicts, err
		})
		b.Track(entry("gone"), time.Now())
		b.Track(entry("refused"), time.Now())
		b.Track(entry("first"), time.Now())
		time.Sleep(time.Millisecond)
		b.Track(entry("last"), time.Now())
		time.Sleep(7*time.Second - 500*time.Microsecond)
		short := entry("short")
		short.TTL = 9 * time.Second
		b.Track(short, time.Now()) // is due between the two others
		pass(8 * time.Second)
		if want := (Round{Done: 3, Gone: 1, Failed: 1, Late: 1, Margin: 2500500 * time.Microsecond}); len(rounds) == 0 || rounds[0] != want {
			t.Errorf("the rounds are %+v, want %+v first", rounds, want)
		}
	})
}

// poolOf is the Submit of a pool with so many workers.
func poolOf(workers int) func(job func()) {
	busy := make(chan struct{}, workers)
	return func(job func()) {
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			job()
		}()
	}
}

func TestGroupsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		b := newBench(t, Options{Submit: poolOf(10), Logger: zap.New(core)})
		var hanging atomic.Int64
		b.setAnswer(func(ctx context.Context, group Group, batch []Renewal) ([]Verdict, error) {
			switch group.By {
			case "hangs":
				if n := hanging.Add(1); n > 4 {
					t.Errorf("one group has %d jobs", n)
				}
				defer hanging.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			case "fails":
				return nil, errDown
			case "lies":
				return make([]Verdict, len(batch)+1), nil
			}
			return allRenewed(ctx, group, batch)
		})
		groups := []string{"hangs", "fails", "lies", "works"}
		for _, g := range groups {
			for i := range 1000 {
				e := entry(fmt.Sprint(i))
				e.Group = Group{By: g}
				b.Track(e, time.Now())
			}
		}
		pass(2 * time.Minute)
		if got, want := len(b.losses), 3000; got != want {
			t.Errorf("%d leases lost, want %d", got, want)
		}
		b.wantLen(t, 1000)
		if got, want := len(b.groups), 1; got != want {
			t.Errorf("%d groups kept, want %d", got, want)
		}
		if got, want := logs.Len(), 3; got != want { // one line per failing group, not per failure
			t.Errorf("%d log lines, want %d: %v", got, want, logs.All())
		}
	})
}

func TestPoolOfOneServesAllGroupsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Submit: poolOf(1)})
		b.setAnswer(slowly(10*time.Millisecond, allRenewed))
		for i := range 50 {
			e := entry("k")
			e.Group = Group{By: i}
			b.Track(e, time.Now())
		}
		pass(2 * time.Minute)
		b.wantLosses(t)
		b.wantLen(t, 50)
	})
}

func TestRecoveryIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		b := newBench(t, Options{Logger: zap.New(core)})
		b.Track(entry("k"), time.Now())
		b.setAnswer(down)
		pass(15500 * time.Millisecond)
		b.setAnswer(nil)
		pass(time.Minute)
		if got, want := logs.Len(), 2; got != want {
			t.Errorf("%d log lines, want %d: %v", got, want, logs.All())
		}
	})
}
