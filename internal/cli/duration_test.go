package cli

import (
	"testing"
	"time"
)

func TestPatienceIsWrittenAsWithFlock(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "10": 10 * time.Second, "0.5": time.Second / 2, ".25": time.Second / 4, "1m30s": 90 * time.Second} {
		var w patience
		if err := w.Set(text); err != nil || w != (patience{true, want}) {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
	for _, text := range []string{"", ".", "1.2.3", "ten", "1e3", "0x10", "99999999999999999999"} {
		if err := new(patience).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
