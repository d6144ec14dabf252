package cli

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1000, 0)

func instant(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// want steps to a moment and compares the action.
func want(t *testing.T, tn *lockRenewal, s float64, a Action) {
	t.Helper()
	if got, _ := tn.Step(instant(s)); got != a {
		t.Fatalf("at %vs: action %d, want %d", s, got, a)
	}
}

func TestSilenceEndsTheCommandBeforeTheLease(t *testing.T) {
	tn := newLockRenewal(Config{Lease: 30 * time.Second}, start)
	want(t, tn, 4.9, actNone)
	want(t, tn, 5, actExtend)
	want(t, tn, 6, actNone)
	tn.Extended(instant(5))
	want(t, tn, 9.9, actNone)
	want(t, tn, 10, actExtend)
	want(t, tn, 10, actNone)
	tn.Failed(instant(15))
	want(t, tn, 15.5, actNone)
	want(t, tn, 16, actExtend)
	want(t, tn, 16, actNone)
	want(t, tn, 25, actTerminate) // 20 s after the extension that succeeded
	want(t, tn, 31.9, actNone)
	want(t, tn, 32, actKill) // 27 s after it
	want(t, tn, 100, actNone)
	if tn.Reason() != Silence || !tn.Sure(instant(34)) || tn.Sure(instant(35)) {
		t.Errorf("reason %d", tn.Reason())
	}
}

func TestAnswerAfterTerminateLetsTheCommandEnd(t *testing.T) {
	tn := newLockRenewal(Config{Lease: 30 * time.Second}, start)
	want(t, tn, 5, actExtend)
	want(t, tn, 5, actNone)
	want(t, tn, 20, actTerminate)
	tn.Extended(instant(19))
	want(t, tn, 20, actNone)
	want(t, tn, 24, actExtend)
	tn.Extended(instant(24))
	want(t, tn, 28, actNone) // not killed
	want(t, tn, 29, actExtend)
	want(t, tn, 51, actKill) // until it is silent again
}

func TestLossKillsSoon(t *testing.T) {
	tn := newLockRenewal(Config{Lease: 30 * time.Second}, start)
	tn.Lost(instant(3))
	want(t, tn, 3, actTerminate)
	want(t, tn, 4.9, actNone)
	want(t, tn, 5, actKill)
	if tn.Reason() != Taken || tn.Sure(instant(3)) {
		t.Errorf("reason %d", tn.Reason())
	}
}

func TestLongestHold(t *testing.T) {
	tn := newLockRenewal(Config{Lease: 30 * time.Second, MaxHold: 4 * time.Second}, start)
	want(t, tn, 3, actNone)
	want(t, tn, 4, actTerminate)
	want(t, tn, 5, actExtend) // the lock is held until the command has ended
	tn.Extended(instant(5))
	want(t, tn, 10, actExtend)
	want(t, tn, 24, actKill)
}

// A holder that was stopped, with its command or alone, asks before it judges.
func TestAStoppedHolderAsksFirst(t *testing.T) {
	stopped := func() *lockRenewal {
		tn := newLockRenewal(Config{Lease: 30 * time.Second}, start)
		want(t, tn, 1, actNone)
		want(t, tn, 100, actExtend)
		want(t, tn, 100, actNone)
		return tn
	}
	t.Run("held", func(t *testing.T) {
		tn := stopped()
		tn.Extended(instant(100))
		want(t, tn, 101, actNone)
		want(t, tn, 105, actExtend)
		if tn.Reason() != Running {
			t.Errorf("reason %d", tn.Reason())
		}
	})
	t.Run("lost", func(t *testing.T) {
		tn := stopped()
		tn.Lost(instant(101))
		want(t, tn, 101, actTerminate)
		want(t, tn, 103, actKill)
	})
	t.Run("silence", func(t *testing.T) {
		tn := stopped()
		tn.Failed(instant(107))
		want(t, tn, 108, actExtend)
		if _, wake := tn.Step(instant(108)); wake != instant(110) {
			t.Errorf("asked to be woken at %v", wake)
		}
		want(t, tn, 110, actKill)
		if tn.Reason() != Silence {
			t.Errorf("reason %d", tn.Reason())
		}
	})
	t.Run("an old answer", func(t *testing.T) {
		tn := newLockRenewal(Config{Lease: 30 * time.Second}, start)
		want(t, tn, 5, actExtend)
		want(t, tn, 5, actNone)
		want(t, tn, 100, actNone)
		tn.Extended(instant(5)) // before the stop: it says nothing about now
		want(t, tn, 100, actExtend)
	})
}

// TestInvariants plays random answers, and wakes exactly when Step says.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Lease:   time.Duration(rapid.IntRange(100, 100_000).Draw(t, "lease")) * time.Millisecond,
			MaxHold: time.Duration(rapid.IntRange(0, 200_000).Draw(t, "maxhold")) * time.Millisecond,
		}
		tn, now, sure, taken := newLockRenewal(cfg, start), start, start, false
		var asked time.Time
		terminated, killed := false, false
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			action, wake := tn.Step(now)
			switch action {
			case actExtend:
				if !asked.IsZero() || taken || killed {
					t.Fatal("an extension too many")
				}
				asked = now
			case actTerminate:
				if terminated || killed {
					t.Fatal("terminated twice")
				}
				terminated = true
			case actKill:
				if killed || !terminated {
					t.Fatal("killed without warning, or twice")
				}
				killed = true
				if !taken && !now.Before(sure.Add(cfg.Lease)) {
					t.Fatal("killed after the end of the lease")
				}
			case actNone:
				if !wake.After(now) {
					t.Fatalf("asked to be woken in the past: %v after %v", wake.Sub(start), now.Sub(start))
				}
				happens := rapid.IntRange(0, 5).Draw(t, "happens")
				if happens > 0 || asked.IsZero() { // else the answer comes before the next wake-up
					now = wake
				}
				switch {
				case asked.IsZero():
				case happens == 0:
					sure, asked = asked, time.Time{}
					tn.Extended(sure)
				case happens == 1:
					asked = time.Time{}
					tn.Failed(now)
				case happens == 2 && rapid.IntRange(0, 20).Draw(t, "loss") == 0:
					taken, asked = true, time.Time{}
					tn.Lost(now)
				}
			}
			if !taken && !killed && !now.Before(sure.Add(cfg.Lease)) {
				t.Fatal("the lease has ended and the command runs")
			}
		}
	})
}
