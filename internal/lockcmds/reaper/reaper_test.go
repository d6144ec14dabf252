package reaper

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
func watching(t *testing.T, places ...string) *Reaper {
	t.Helper()
	r := &Reaper{}
	if s := r.Watch(); s.Op != List {
		t.Fatalf("watch: %+v", s)
	}
	if s := r.Listed(places, stale, true, OK); s != (Step{Op: Pause, Delay: stale}) {
		t.Fatalf("listed: %+v", s)
	}
	if s := r.Due(); s.Op != AskHead {
		t.Fatalf("due: %+v", s)
	}
	return r
}

func TestAHeadThatNobodyListensForIsRemovedAndTheNextOneLookedAt(t *testing.T) {
	r := watching(t, first, second)
	if s := r.Told(first, false, true, OK); s != (Step{Op: RemoveHead, Place: first}) {
		t.Fatalf("told: %+v", s)
	}
	if s := r.Removed(first, true, 0, true, OK); s.Op != AskHead {
		t.Fatalf("removed: %+v", s)
	}
	if s := r.Told(second, false, true, OK); s != (Step{Op: RemoveHead, Place: second}) {
		t.Fatalf("told: %+v", s)
	}
}

func TestAHeadThatDoesNotReactIsRemovedInTheEnd(t *testing.T) {
	r := watching(t, first, second)
	for look := range MaxLooks {
		if s := r.Told(first, false, true, OK); s.Force {
			t.Fatalf("removed at look %d", look)
		}
		if s := r.Removed(first, false, 1, true, OK); s != (Step{Op: Wake, Delay: LookAgain}) {
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
		look func(r *Reaper) Step
		want Step
	}{
		"the head waits here":          {func(r *Reaper) Step { return r.Told(first, true, true, OK) }, Step{Op: Wake}},
		"the queue is empty":           {func(r *Reaper) Step { return r.Told("", false, true, OK) }, Step{Op: Wake}},
		"the head has come since":      {func(r *Reaper) Step { return r.Told("new", false, true, OK) }, Step{Op: Wake}},
		"Redis does not answer":        {func(r *Reaper) Step { return r.Told("", false, true, Passing) }, Step{Op: Wake, Delay: LookAgain}},
		"Redis refuses":                {func(r *Reaper) Step { return r.Told("", false, true, Final) }, Step{Op: Wake}},
		"no waiter here has a place":   {func(r *Reaper) Step { return r.Told(first, true, false, OK) }, Step{}},
		"the head was not the first":   {func(r *Reaper) Step { return r.Removed(first, false, 0, true, OK) }, Step{Op: Wake}},
		"Redis refuses to remove":      {func(r *Reaper) Step { return r.Removed(first, false, 0, true, Final) }, Step{Op: Wake}},
		"Redis does not answer behind": {func(r *Reaper) Step { return r.Removed(first, false, 0, true, Passing) }, Step{Op: Wake, Delay: LookAgain}},
	} {
		r := watching(t, first)
		if got := c.look(r); got != c.want || r.Asleep() != (c.want.Delay == 0) {
			t.Errorf("%s: %+v, asleep: %v", name, got, r.Asleep())
		}
	}
}

func TestTheStaleTimeBeginsWithTheAnswerOfRedis(t *testing.T) {
	r := &Reaper{}
	r.Watch()
	if s := r.Watch(); s.Op != Nothing {
		t.Errorf("a second watch: %+v", s)
	}
	if s := r.Listed(nil, stale, true, Passing); s != (Step{Op: Pause, Delay: LookAgain}) {
		t.Errorf("no answer: %+v", s)
	}
	if s := r.Due(); s.Op != List {
		t.Errorf("due: %+v", s)
	}
	if s := r.Listed(nil, stale, true, Final); s.Op != Nothing || !r.Asleep() || r.Due().Op != Nothing {
		t.Errorf("refused: %+v", s)
	}
}
