package lockcmds

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

func TestFailureSaysWhetherAnythingHappened(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("run acquire: %w", script.Error("NOPERM no")), "-NOPERM no\r\n"},
		{&contract.UnsentError{Reply: []byte("-BUSY script\r\n")}, "-BUSY script\r\n"},
		{&contract.UnsentError{}, string(contract.Unreachable)},
		{fmt.Errorf("run acquire: %w", contract.ErrUnsent), string(contract.Unreachable)},
		{contract.ErrInDoubt, string(contract.Unanswered)},
		{errors.New("strange"), string(contract.Unanswered)}, // it is not known to be harmless
	} {
		if got := string(failureReply(c.err)); got != c.want {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

func TestInfoLeavesOutWhatIsNotKnown(t *testing.T) {
	i := lockInfo{Hold: Hold{Owner: "o"}, HeldFor: -1} // of a client of another proxy, granted by Redisson
	if got := locktest.Show(appendLockInfo(nil, 3, i)); strings.Contains(got, "client") || strings.Contains(got, "held-ms") {
		t.Error(got)
	}
	i.HeldFor = 0
	if got := locktest.Show(appendLockInfo(nil, 3, i)); !strings.Contains(got, " held-ms :0 ") {
		t.Errorf("granted just now: %s", got)
	}
}
