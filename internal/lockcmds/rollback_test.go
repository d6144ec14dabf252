package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

// The answers of drop: the lock is free, the grant goes on, and the owner does not hold the lock by that grant.
const (
	freed      = 1
	callGoesOn = 2
	callIsGone = 0
)

func TestARollbackIsSentUntilItIsAnswered(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []any
		late    bool // the answer to a call is lost
		want    string
		asked   int
	}{
		{"answered", []any{locktest.Numbers(callGoesOn)}, false, "tried ended", 1},
		{"a copy is answered", []any{contract.ErrInDoubt, contract.ErrUnsent, locktest.Numbers(callIsGone)}, false, "tried ended", 3},
		{"Redis refuses", []any{locktest.Refusal("NOPERM no")}, false, "tried ended", 1},
		{"Redis is busy", []any{locktest.Refusal("LOADING soon"), locktest.Numbers(callGoesOn)}, false, "tried ended", 2},
		{"of a lost call", []any{contract.ErrUnsent, locktest.Numbers(freed), contract.ErrUnsent, locktest.Numbers(callIsGone)}, true, "tried ended ended", 4},
	} {
		w := newCallWorld(t)
		w.Own.Answers = c.answers
		var told []string
		w.RollBack(rollback{
			Kind: exclusive{}, Drop: script.Drop{Key: "k", Part: script.Part{Owner: "o"}}, Limit: time.Minute, Late: c.late,
			Tried: func(bool) { told = append(told, "tried") },
			Done:  func() { told = append(told, "ended") },
		})
		if !w.Busy() || len(w.Own.Asked) > 0 {
			t.Errorf("%s: it is not sent by a job", c.name)
		}
		w.Settle()
		if got := strings.Join(told, " "); got != c.want || len(w.Own.Asked) != c.asked || w.Busy() {
			t.Errorf("%s: told %q after %d scripts, want %q after %d; busy: %v", c.name, got, len(w.Own.Asked), c.want, c.asked, w.Busy())
		}
	}
}

// The lease that goes on runs while Redis is away.
func TestEachAttemptOfARollbackSaysWhatIsLeftOfTheLease(t *testing.T) {
	w := newCallWorld(t)
	w.Own.Answers = []any{contract.ErrInDoubt, locktest.Numbers(callGoesOn)}
	w.RollBack(rollback{Kind: exclusive{}, Drop: script.Drop{Key: "k"}, Limit: time.Hour, Until: w.Time.Add(time.Minute)})
	w.Settle()
	if first, second := w.Own.Args[0][argKeep], w.Own.Args[1][argKeep]; first != "60000" || second[0] != '5' {
		t.Errorf("%s ms, and later %s ms", first, second)
	}
}

func TestARollbackIsGivenUpAtItsLimit(t *testing.T) {
	w := newCallWorld(t)
	begun, ended := w.Time, 0
	w.RollBack(rollback{Kind: exclusive{}, Drop: script.Drop{Key: "k"}, Limit: 10 * time.Second, Done: func() { ended++ }})
	w.Settle()
	if took := w.Time.Sub(begun); ended != 1 || took < 10*time.Second || took > 12*time.Second {
		t.Errorf("ended %d times, after %v", ended, took)
	}
}
