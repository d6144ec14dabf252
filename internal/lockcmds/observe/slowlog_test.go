package observe

import (
	"strings"
	"testing"
	"time"
)

func ids(l *Log, n int) (all []int64) {
	for _, e := range l.Latest(n) {
		all = append(all, e.ID)
	}
	return all
}

func equal(got []int64, want ...int64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

func TestOnlyMoreThanTheThresholdIsSlow(t *testing.T) {
	s := Settings{Wait: time.Second, Hold: 2 * time.Second, Len: 1}
	l := New(NewBudget(0), func() Settings { return s })
	if l.Wants(Wait, time.Second) || !l.Wants(Wait, time.Second+1) || l.Wants(Hold, 2*time.Second) || !l.Wants(Hold, 2*time.Second+1) {
		t.Error("the thresholds are not those of the settings")
	}
	s = Settings{Len: 1}
	if l.Wants(Wait, time.Hour) || l.Wants(Hold, time.Hour) {
		t.Error("0 does not switch off")
	}
}

func TestTheLatestEntriesStay(t *testing.T) {
	s := Settings{Len: 3}
	l := New(NewBudget(100), func() Settings { return s })
	for range 5 {
		l.Ended(Ending{})
	}
	if !equal(ids(l, -1), 4, 3, 2) || !equal(ids(l, 2), 4, 3) || !equal(ids(l, 99), 4, 3, 2) || !equal(ids(l, 0)) {
		t.Errorf("%v, %v", ids(l, -1), ids(l, 2))
	}
	s.Len = 1
	l.Ended(Ending{})
	if !equal(ids(l, -1), 5) {
		t.Errorf("after the setting was made smaller: %v", ids(l, -1))
	}
	l.Reset()
	if l.Len() != 0 {
		t.Error("RESET leaves entries")
	}
	l.Ended(Ending{})
	if !equal(ids(l, -1), 6) {
		t.Errorf("numbers start anew: %v", ids(l, -1))
	}
	s.Len = 0
	l.Ended(Ending{})
	if l.Len() != 0 {
		t.Error("a log of length 0 has entries")
	}
}

func TestTextsAreShort(t *testing.T) {
	l := New(NewBudget(100), func() Settings { return Settings{Len: 9} })
	l.Ended(Ending{Key: strings.Repeat("x", 1000)})
	if got, want := l.Latest(1)[0].Key, strings.Repeat("x", 128)+"... (872 more bytes)"; got != want {
		t.Errorf("%q", got)
	}
}

// TestAllLogsShareABudget fills two logs: beyond their floors they have no more entries than the budget allows, and
// each new entry takes the place of one of the same log.
func TestAllLogsShareABudget(t *testing.T) {
	s := Settings{Len: 1000}
	b := NewBudget(10)
	one, two := New(b, func() Settings { return s }), New(b, func() Settings { return s })
	for range 500 {
		one.Ended(Ending{})
	}
	for range 500 {
		two.Ended(Ending{})
	}
	if one.Len() != floor+10 || two.Len() != floor || b.left.Load() != 0 {
		t.Errorf("%d and %d entries, %d left", one.Len(), two.Len(), b.left.Load())
	}
	if got := ids(two, 1); !equal(got, 499) {
		t.Errorf("the latest entry is %v", got)
	}
	s.Len = floor + 4
	one.Ended(Ending{})
	if one.Len() != floor+4 || b.left.Load() != 6 {
		t.Errorf("%d entries, %d left", one.Len(), b.left.Load())
	}
	one.Reset()
	if b.left.Load() != 10 {
		t.Errorf("%d left after RESET", b.left.Load())
	}
	for range 500 {
		one.Ended(Ending{})
	}
	one.Close()
	one.Ended(Ending{})
	if one.Len() != 0 || b.left.Load() != 10 {
		t.Errorf("%d entries and %d left after the end", one.Len(), b.left.Load())
	}
}
