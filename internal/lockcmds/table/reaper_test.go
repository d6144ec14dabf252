package table

import (
	"testing"
	"time"
)

const (
	stale   = 8 * time.Second
	process = "11111111-2222-4333-8444-555555555555"
	first   = process + ":1"
	second  = process + ":2"
)

// watching is a reaper that looks at the head of a queue with these places.
func watching(t *testing.T, places ...string) *reaper {
	t.Helper()
	r := &reaper{}
	if s := r.Watch(); s.Op != reapList {
		t.Fatalf("watch: %+v", s)
	}
	if s := r.Listed(places, stale, true, OK); s != (reaperStep{Op: reapPause, Delay: stale}) {
		t.Fatalf("listed: %+v", s)
	}
	if s := r.Due(); s.Op != reapAskHead {
		t.Fatalf("due: %+v", s)
	}
	return r
}

func TestAHeadThatNobodyListensForIsRemovedAndTheNextOneLookedAt(t *testing.T) {
	r := watching(t, first, second)
	if s := r.Told(first, false, true, OK); s != (reaperStep{Op: reapRemoveHead, Place: first}) {
		t.Fatalf("told: %+v", s)
	}
	if s := r.Removed(first, true, 0, true, OK); s.Op != reapAskHead {
		t.Fatalf("removed: %+v", s)
	}
	if s := r.Told(second, false, true, OK); s != (reaperStep{Op: reapRemoveHead, Place: second}) {
		t.Fatalf("told: %+v", s)
	}
}

func TestAHeadThatDoesNotReactIsRemovedInTheEnd(t *testing.T) {
	r := watching(t, first, second)
	for look := range MaxLooks {
		if s := r.Told(first, false, true, OK); s.Force {
			t.Fatalf("removed at look %d", look)
		}
		if s := r.Removed(first, false, 1, true, OK); s != (reaperStep{Op: reapWake, Delay: LookAgain}) {
			t.Fatalf("look %d: %+v", look, s)
		}
		r.Due()
	}
	if s := r.Told(first, false, true, OK); !s.Force {
		t.Fatal("not removed")
	}
	r.Removed(first, true, 1, true, OK)
	if s := r.Told(second, false, true, OK); !s.Force {
		t.Error("another waiter of the process that did not react is waited for")
	}
}

func TestAHeadThatWasOvertakenIsNotTakenForDead(t *testing.T) {
	r := watching(t, first)
	for look := range 3 * MaxLooks {
		if s := r.Told(first, false, true, OK); s.Force {
			t.Fatalf("removed at look %d", look)
		}
		r.Removed(first, false, 1, true, OK)
		r.Released()
		r.Due()
	}
}

func TestALookEnds(t *testing.T) {
	for name, c := range map[string]struct {
		look func(r *reaper) reaperStep
		want reaperStep
	}{
		"the head waits here":          {func(r *reaper) reaperStep { return r.Told(first, true, true, OK) }, reaperStep{Op: reapWake}},
		"the queue is empty":           {func(r *reaper) reaperStep { return r.Told("", false, true, OK) }, reaperStep{Op: reapWake}},
		"the head has come since":      {func(r *reaper) reaperStep { return r.Told("new", false, true, OK) }, reaperStep{Op: reapWake}},
		"Redis does not answer":        {func(r *reaper) reaperStep { return r.Told("", false, true, Passing) }, reaperStep{Op: reapWake, Delay: LookAgain}},
		"Redis refuses":                {func(r *reaper) reaperStep { return r.Told("", false, true, Final) }, reaperStep{Op: reapWake}},
		"no waiter here has a place":   {func(r *reaper) reaperStep { return r.Told(first, true, false, OK) }, reaperStep{}},
		"the head was not the first":   {func(r *reaper) reaperStep { return r.Removed(first, false, 0, true, OK) }, reaperStep{Op: reapWake}},
		"Redis refuses to remove":      {func(r *reaper) reaperStep { return r.Removed(first, false, 0, true, Final) }, reaperStep{Op: reapWake}},
		"Redis does not answer behind": {func(r *reaper) reaperStep { return r.Removed(first, false, 0, true, Passing) }, reaperStep{Op: reapWake, Delay: LookAgain}},
	} {
		r := watching(t, first)
		if got := c.look(r); got != c.want || r.Asleep() != (c.want.Delay == 0) {
			t.Errorf("%s: %+v, asleep: %v", name, got, r.Asleep())
		}
	}
}

func TestTheStaleTimeBeginsWithTheAnswerOfRedis(t *testing.T) {
	r := &reaper{}
	r.Watch()
	if s := r.Watch(); s.Op != reapNothing {
		t.Errorf("a second watch: %+v", s)
	}
	if s := r.Listed(nil, stale, true, Passing); s != (reaperStep{Op: reapPause, Delay: LookAgain}) {
		t.Errorf("no answer: %+v", s)
	}
	if s := r.Due(); s.Op != reapList {
		t.Errorf("due: %+v", s)
	}
	if s := r.Listed(nil, stale, true, Final); s.Op != reapNothing || !r.Asleep() || r.Due().Op != reapNothing {
		t.Errorf("refused: %+v", s)
	}
}
