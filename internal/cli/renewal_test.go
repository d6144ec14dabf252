package cli

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1000, 0)

func instant(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// want steps to a moment and compares the action.
func want(t *testing.T, tn *Tenure, s float64, a Action) {
	t.Helper()
	if got, _ := tn.Step(instant(s)); got != a {
		t.Fatalf("at %vs: action %d, want %d", s, got, a)
	}
}

func TestSilenceEndsTheCommandBeforeTheLease(t *testing.T) {
	tn := NewTenure(Config{Lease: 30 * time.Second}, start)
	want(t, tn, 4.9, NoAction)
	want(t, tn, 5, ActExtend)
	want(t, tn, 6, NoAction)
	tn.Extended(instant(5))
	want(t, tn, 9.9, NoAction)
	want(t, tn, 10, ActExtend)
	want(t, tn, 10, NoAction)
	tn.Failed(instant(15))
	want(t, tn, 15.5, NoAction)
	want(t, tn, 16, ActExtend)
	want(t, tn, 16, NoAction)
	want(t, tn, 25, ActTerminate) // 20 s after the extension that succeeded
	want(t, tn, 31.9, NoAction)
	want(t, tn, 32, ActKill) // 27 s after it
	want(t, tn, 100, NoAction)
	if tn.Reason() != Silence || !tn.Sure(instant(34)) || tn.Sure(instant(35)) {
		t.Errorf("reason %d", tn.Reason())
	}
}

func TestAnswerAfterTerminateLetsTheCommandEnd(t *testing.T) {
	tn := NewTenure(Config{Lease: 30 * time.Second}, start)
	want(t, tn, 5, ActExtend)
	want(t, tn, 5, NoAction)
	want(t, tn, 20, ActTerminate)
	tn.Extended(instant(19))
	want(t, tn, 20, NoAction)
	want(t, tn, 24, ActExtend)
	tn.Extended(instant(24))
	want(t, tn, 28, NoAction) // not killed
	want(t, tn, 29, ActExtend)
	want(t, tn, 51, ActKill) // until it is silent again
}

func TestLossKillsSoon(t *testing.T) {
	tn := NewTenure(Config{Lease: 30 * time.Second}, start)
	tn.Lost(instant(3))
	want(t, tn, 3, ActTerminate)
	want(t, tn, 4.9, NoAction)
	want(t, tn, 5, ActKill)
	if tn.Reason() != Taken || tn.Sure(instant(3)) {
		t.Errorf("reason %d", tn.Reason())
	}
}

func TestLongestHold(t *testing.T) {
	tn := NewTenure(Config{Lease: 30 * time.Second, MaxHold: 4 * time.Second}, start)
	want(t, tn, 3, NoAction)
	want(t, tn, 4, ActTerminate)
	want(t, tn, 5, ActExtend) // the lock is held until the command has ended
	tn.Extended(instant(5))
	want(t, tn, 10, ActExtend)
	want(t, tn, 24, ActKill)
}

// A holder that was stopped, with its command or alone, asks before the command goes on.
func TestAStoppedHolderAsksFirst(t *testing.T) {
	stopped := func() *Tenure {
		tn := NewTenure(Config{Lease: 30 * time.Second}, start)
		want(t, tn, 1, NoAction)
		want(t, tn, 100, ActSuspend)
		want(t, tn, 100, ActExtend)
		want(t, tn, 100, NoAction)
		return tn
	}
	t.Run("held", func(t *testing.T) {
		tn := stopped()
		tn.Extended(instant(100))
		want(t, tn, 101, ActResume)
		want(t, tn, 101, NoAction)
		want(t, tn, 105, ActExtend)
		if tn.Reason() != Running {
			t.Errorf("reason %d", tn.Reason())
		}
	})
	t.Run("lost", func(t *testing.T) {
		tn := stopped()
		tn.Lost(instant(101))
		want(t, tn, 101, ActTerminate)
		want(t, tn, 103, ActKill)
	})
	t.Run("silence", func(t *testing.T) {
		tn := stopped()
		tn.Failed(instant(107))
		want(t, tn, 108, ActExtend)
		if _, wake := tn.Step(instant(108)); wake != instant(120) {
			t.Errorf("asked to be woken at %v", wake)
		}
		want(t, tn, 120, ActKill)
		if tn.Reason() != Silence {
			t.Errorf("reason %d", tn.Reason())
		}
	})
	t.Run("an old answer", func(t *testing.T) {
		tn := NewTenure(Config{Lease: 30 * time.Second}, start)
		want(t, tn, 5, ActExtend)
		want(t, tn, 5, NoAction)
		want(t, tn, 100, ActSuspend)
		tn.Extended(instant(5)) // before the stop: it says nothing about now
		want(t, tn, 100, ActExtend)
	})
}

// TestInvariants plays random answers, and wakes exactly when Step says.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Lease:   time.Duration(rapid.IntRange(100, 100_000).Draw(t, "lease")) * time.Millisecond,
			MaxHold: time.Duration(rapid.IntRange(0, 200_000).Draw(t, "maxhold")) * time.Millisecond,
		}
		tn, now, sure, taken := NewTenure(cfg, start), start, start, false
		var asked time.Time
		terminated, killed := false, false
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			action, wake := tn.Step(now)
			switch action {
			case ActExtend:
				if !asked.IsZero() || taken || killed {
					t.Fatal("an extension too many")
				}
				asked = now
			case ActTerminate:
				if terminated || killed {
					t.Fatal("terminated twice")
				}
				terminated = true
			case ActKill:
				if killed || !terminated {
					t.Fatal("killed without warning, or twice")
				}
				killed = true
				if !taken && !now.Before(sure.Add(cfg.Lease)) {
					t.Fatal("killed after the end of the lease")
				}
			case ActSuspend, ActResume:
				t.Fatal("suspended, and was called in time")
			case NoAction:
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
