package upstream

import (
	"errors"
	"testing"
	"time"
)

func TestAnOutageHasFewEntries(t *testing.T) {
	o := Outage{Cause: error.Error}
	now := time.Now()
	if e := o.Note(now, nil); e.Kind != NoEvent {
		t.Errorf("the first contact: %v", e)
	}
	away, refused := errors.New("away"), errors.New("refused")
	if e := o.Note(now, away); e.Kind != OutageBegan || e.Cause != "away" || e.Failures != 1 {
		t.Errorf("the first failure: %v", e)
	}
	entries := 0
	for range 1000 { // 100 s
		now = now.Add(100 * time.Millisecond)
		if e := o.Note(now, away); e.Kind != NoEvent {
			entries++
			if e.Kind != OutageGoesOn || e.Lasted != OutagePeriod {
				t.Errorf("meanwhile: %v", e)
			}
		}
	}
	if entries != 1 {
		t.Errorf("%d entries in 100 s", entries)
	}
	if e := o.Note(now, refused); e.Kind != OutageBegan || e.Cause != "refused" || e.Lasted != 100*time.Second {
		t.Errorf("another cause: %v", e)
	}
	if e := o.Note(now, nil); e.Kind != OutageOver || e.Failures != 1002 || e.Lasted != 100*time.Second {
		t.Errorf("the end: %v", e)
	}
	if e := o.Note(now, nil); e.Kind != NoEvent {
		t.Errorf("after the end: %v", e)
	}
}
