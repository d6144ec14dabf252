package slowlog

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
	if l.SlowWait(time.Second) || !l.SlowWait(time.Second+1) || l.SlowHold(2*time.Second) || !l.SlowHold(2*time.Second+1) {
		t.Error("the thresholds are not those of the settings")
	}
	s = Settings{Len: 1}
	if l.SlowWait(time.Hour) || l.SlowHold(time.Hour) {
		t.Error("0 does not switch off")
	}
	var none *Log
	if none.SlowWait(time.Hour) || none.SlowHold(time.Hour) || none.Len() != 0 || none.Latest(-1) != nil {
		t.Error("a nil log has entries")
	}
	none.Reset()
	none.Close()
}

func TestTheLatestEntriesStay(t *testing.T) {
	s := Settings{Len: 3}
	l := New(NewBudget(100), func() Settings { return s })
	for range 5 {
		l.Add(Entry{})
	}
	if !equal(ids(l, -1), 4, 3, 2) || !equal(ids(l, 2), 4, 3) || !equal(ids(l, 99), 4, 3, 2) || !equal(ids(l, 0)) {
		t.Errorf("%v, %v", ids(l, -1), ids(l, 2))
	}
	s.Len = 1
	l.Add(Entry{})
	if !equal(ids(l, -1), 5) {
		t.Errorf("after the setting was made smaller: %v", ids(l, -1))
	}
	l.Reset()
	if l.Len() != 0 {
		t.Error("RESET leaves entries")
	}
	l.Add(Entry{})
	if !equal(ids(l, -1), 6) {
		t.Errorf("numbers start anew: %v", ids(l, -1))
	}
	s.Len = 0
	l.Add(Entry{})
	if l.Len() != 0 {
		t.Error("a log of length 0 has entries")
	}
}

func TestTextsAreShort(t *testing.T) {
	l := New(NewBudget(100), func() Settings { return Settings{Len: 9} })
	long := strings.Repeat("x", 1000)
	l.Add(Entry{Key: long, By: Party{long, long, long}, Behind: Party{long, long, long}})
	l.Add(Entry{Key: long[:128]})
	all := l.Latest(-1)
	want := long[:128] + "... (872 more bytes)"
	for _, text := range []string{all[1].Key, all[1].By.Owner, all[1].By.Addr, all[1].By.Name, all[1].Behind.Owner, all[1].Behind.Addr, all[1].Behind.Name} {
		if text != want {
			t.Errorf("%q", text)
		}
	}
	if all[0].Key != long[:128] {
		t.Errorf("%q", all[0].Key)
	}
}

// TestAllLogsShareABudget fills two logs: beyond their floors they have no more entries than the budget allows, and each
// new entry takes the place of one of the same log.
func TestAllLogsShareABudget(t *testing.T) {
	s := Settings{Len: 1000}
	b := NewBudget(10)
	one, two := New(b, func() Settings { return s }), New(b, func() Settings { return s })
	for range 500 {
		one.Add(Entry{})
	}
	for range 500 {
		two.Add(Entry{})
	}
	if one.Len() != floor+10 || two.Len() != floor || b.left.Load() != 0 {
		t.Errorf("%d and %d entries, %d left", one.Len(), two.Len(), b.left.Load())
	}
	if got := ids(two, 1); !equal(got, 499) {
		t.Errorf("the latest entry is %v", got)
	}
	s.Len = floor + 4
	one.Add(Entry{})
	if one.Len() != floor+4 || b.left.Load() != 6 {
		t.Errorf("%d entries, %d left", one.Len(), b.left.Load())
	}
	one.Reset()
	if b.left.Load() != 10 {
		t.Errorf("%d left after RESET", b.left.Load())
	}
	for range 500 {
		one.Add(Entry{})
	}
	one.Close()
	one.Add(Entry{})
	if one.Len() != 0 || b.left.Load() != 10 {
		t.Errorf("%d entries and %d left after the end", one.Len(), b.left.Load())
	}
}
