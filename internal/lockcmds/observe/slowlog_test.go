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
	s := Settings{Wait: time.Second, Hold: 2 * time.Second}
	l := New(func() Settings { return s })
	if l.Wants(Wait, time.Second) || !l.Wants(Wait, time.Second+1) || l.Wants(Hold, 2*time.Second) || !l.Wants(Hold, 2*time.Second+1) {
		t.Error("the thresholds are not those of the settings")
	}
	s = Settings{}
	if l.Wants(Wait, time.Hour) || l.Wants(Hold, time.Hour) {
		t.Error("0 does not switch off")
	}
}

func TestTheLatestEntriesStay(t *testing.T) {
	l := New(func() Settings { return Settings{} })
	for range length + 2 {
		l.Ended(Ending{})
	}
	if all := ids(l, -1); len(all) != length || l.Len() != length || all[0] != length+1 || all[length-1] != 2 {
		t.Errorf("%v", all)
	}
	if !equal(ids(l, 2), length+1, length) || !equal(ids(l, 0)) || len(ids(l, 1000)) != length {
		t.Errorf("%v", ids(l, 2))
	}
	l.Reset()
	if l.Len() != 0 {
		t.Error("RESET leaves entries")
	}
	l.Ended(Ending{})
	if !equal(ids(l, -1), length+2) {
		t.Errorf("numbers start anew: %v", ids(l, -1))
	}
}

func TestTextsAreShort(t *testing.T) {
	l := New(func() Settings { return Settings{} })
	l.Ended(Ending{Key: strings.Repeat("x", 1000)})
	if got, want := l.Latest(1)[0].Key, strings.Repeat("x", 128)+"... (872 more bytes)"; got != want {
		t.Errorf("%q", got)
	}
}
