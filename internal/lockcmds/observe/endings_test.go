package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTextsOfEndingsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	e := Ending{Key: long, By: Party{long, long, long}, Behind: Party{long, long, long}}.Shortened()
	want := long[:128] + "... (872 more bytes)"
	for _, text := range []string{e.Key, e.By.Owner, e.By.Addr, e.By.Name, e.Behind.Owner, e.Behind.Addr, e.Behind.Name} {
		if text != want {
			t.Errorf("%q", text)
		}
	}
	if e := (Ending{Key: long[:128]}).Shortened(); e.Key != long[:128] {
		t.Errorf("%q", e.Key)
	}
}

// from is an Observer of holds, and of waits longer than it.
type from struct {
	limit time.Duration
	got   []string
}

func (f *from) Wants(kind Kind, took time.Duration) bool { return kind == Hold || took > f.limit }
func (f *from) Ended(e Ending)                           { f.got = append(f.got, e.Key) }

func TestEachObserverIsToldWhatItWants(t *testing.T) {
	brief, long := &from{limit: time.Second}, &from{limit: time.Minute}
	all := Observers{brief, long}
	if all.Wants(Wait, time.Second) || !all.Wants(Wait, 2*time.Second) || !all.Wants(Hold, 0) || Observers(nil).Wants(Hold, time.Hour) {
		t.Error("wanted is what at least one observer wants")
	}
	for key, e := range map[string]Ending{"a": {Kind: Hold}, "b": {Kind: Wait, Took: 2 * time.Second}} {
		e.Key = key
		all.Ended(e)
	}
	if diff := cmp.Diff([]string{"a"}, long.got); diff != "" || len(brief.got) != 2 {
		t.Errorf("%v, %s", brief.got, diff)
	}
}
