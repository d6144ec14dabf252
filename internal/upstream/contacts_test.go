package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

func TestAnOutageHasFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, entries := observer.New(zap.DebugLevel)
		c := newRedisContacts("there", zap.New(core))
		defer c.Entries.Flush()
		away, refused := errors.New("away"), &dial.RefusedError{Reply: "WRONGPASS"}
		note := func(err error, want string, failures int64) {
			t.Helper()
			c.Note(err)
			for _, e := range entries.TakeAll() {
				if f := e.ContextMap(); e.Message != want || f["failures"] != failures {
					t.Errorf("the log has %q %v, want %q, %d failures", e.Message, f, want, failures)
				}
				want = ""
			}
			if want != "" {
				t.Errorf("the log has no %q", want)
			}
			if ready, why := c.Ready(); ready != (err == nil) || !errors.Is(why, err) {
				t.Errorf("Ready: %v, %v", ready, why)
			}
		}
		note(nil, "", 0)
		note(away, "upstream is not reachable", 1)
		for n := int64(2); n <= 1001; n++ { // 100 s
			time.Sleep(100 * time.Millisecond)
			if n == 601 {
				note(away, "upstream is not reachable", n)
			} else {
				note(away, "", 0)
			}
		}
		note(refused, "upstream refused the proxy's credentials", 1002)
		note(nil, "upstream is available again", 1002)
		note(nil, "", 0)
	})
}
