package script_test

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// A proxy reads of another one's owner for which lock it waits, in which mode, and since when.
func TestAWaitIsReadAsItWasTold(t *testing.T) {
	b := newRig(t)
	for _, told := range []script.Wait{
		{Lock: "a lock of two words", Since: 1, Told: 2},
		{Lock: key, Shared: true, Since: 3, Told: 4},
	} {
		b.run(script.Waits{Owner: me, Tell: &told, TTL: time.Minute}.Call())
		if read, err := script.DecodeWaits(b.run(script.Waits{Owner: me}.Call())); err != nil || read == nil || *read != told {
			t.Errorf("told %+v, read %+v, %v", told, read, err)
		}
	}
	if read, err := script.DecodeWaits(b.run(script.Waits{Owner: other}.Call())); err != nil || read != nil {
		t.Errorf("an owner that does not wait: %+v, %v", read, err)
	}
}
