package upstream

import (
	"errors"
	"testing"
	"time"
)

func TestAnOutageHasFewEntries(t *testing.T) {
	o := outageState{Cause: error.Error}
	now := time.Now()
	if e := o.Note(now, nil); e.Kind != noEvent {
		t.Errorf("the first contact: %v", e)
	}
	away, refused := errors.New("away"), errors.New("refused")
	if e := o.Note(now, away); e.Kind != outageBegan || e.Cause != "away" || e.Failures != 1 {
		t.Errorf("the first failure: %v", e)
	}
	entries := 0
	for range 1000 { // 100 s
		now = now.Add(100 * time.Millisecond)
		if e := o.Note(now, away); e.Kind != noEvent {
			entries++
			if e.Kind != outageGoesOn || e.Lasted != outagePeriod {
				t.Errorf("meanwhile: %v", e)
			}
		}
	}
	if entries != 1 {
		t.Errorf("%d entries in 100 s", entries)
	}
	if e := o.Note(now, refused); e.Kind != outageBegan || e.Cause != "refused" || e.Lasted != 100*time.Second {
		t.Errorf("another cause: %v", e)
	}
	if e := o.Note(now, nil); e.Kind != outageOver || e.Failures != 1002 || e.Lasted != 100*time.Second {
		t.Errorf("the end: %v", e)
	}
	if e := o.Note(now, nil); e.Kind != noEvent {
		t.Errorf("after the end: %v", e)
	}
}
