package topology

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusalsCostACommandALimitedTime(t *testing.T) {
	const limit = time.Second
	for name, c := range map[string]struct {
		held, away time.Duration // at a server, and between two
		waits      bool          // for other clients
		want       int           // refusals until the command is given up; 0: never
	}{
		"refused at once":                     {0, limit / 4, false, 5},
		"servers answer slowly":               {limit / 4, limit / 4, false, 3},
		"servers hold it back for long":       {limit + 1, limit / 4, false, 0},
		"it waits, and is refused at once":    {0, limit / 4, true, 5},
		"it waits at each server for a while": {limit / 2, limit / 100, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a Attempts
				for n := 1; n <= 50; n++ {
					if c.waits {
						a.Held(limit)
					} else {
						a.Waited(limit)
					}
					if !a.Refused(limit) {
						if n != c.want {
							t.Errorf("given up at refusal %d, want %d", n, c.want)
						}
						return
					}
					time.Sleep(c.away)
					a.Sent()
					time.Sleep(c.held)
				}
				if c.want != 0 {
					t.Errorf("never given up, want %d", c.want)
				}
			})
		})
	}
}

func TestPausesGrow(t *testing.T) {
	var a Attempts
	var last time.Duration
	for range 20 {
		if !a.Refused(time.Minute) {
			t.Fatal("given up")
		}
		if p := a.Pause(); p < last || p > 100*time.Millisecond {
			t.Errorf("a pause of %v after one of %v", p, last)
		} else {
			last = p
		}
	}
	if last != 100*time.Millisecond || a.Refused(-1) {
		t.Error("the longest pause is 100 ms, and attempts end")
	}
}
