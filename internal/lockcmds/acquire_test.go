package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

func TestTheFirstAttemptIsOneScriptOnTheSessionsOwnConnection(t *testing.T) {
	for _, c := range []struct {
		line   string
		script string
		answer resp.Value
		err    error
		reply  string
	}{
		{"LOCK k", "acquire", grantOfFence(7), nil, ":7"},
		{"FAIRLOCK k", "attempt", grantOfFence(7), nil, ":7"},
		{"TRYLOCK k", "acquire", busy(time.Second), nil, "(nil)"},
		{"LOCK k WAIT 0", "acquire", busy(time.Second), nil, "(nil)"},
		{"LOCK k", "acquire", resp.Value{}, contract.ErrUnsent, "unreachable"},
		{"LOCK k", "acquire", resp.Value{Kind: resp.SimpleError, Str: []byte("NOPERM no")}, nil, "-NOPERM no"},
	} {
		w := newLockWorld(t)
		a := w.client(1).sends(c.line)
		if name := a.Sent[0].Script.Name(); name != c.script {
			t.Errorf("%s: %s.lua", c.line, name)
		}
		a.answered(c.answer, c.err)
		a.got(c.reply)
		if w.asks(1) || (w.Holds() == 1) != (c.reply == ":7") || len(w.Own.Asked) != 0 {
			t.Errorf("%s: asks %v, %d holds, the engine asked %q", c.line, w.asks(1), w.Holds(), w.Own.Asked)
		}
	}
}

func TestAnAcquireWithoutAnAnswerIsRolledBackTwice(t *testing.T) {
	w := newLockWorld(t)
	a := w.client(1).sends("LOCK k")
	w.Own.Answers = []any{contract.ErrUnsent, contract.ErrInDoubt, locktest.Numbers(0), locktest.Numbers(1)}
	a.answered(resp.Value{}, contract.ErrInDoubt)
	a.got("closed")
	w.Pass(time.Minute)
	if got := strings.Join(w.Own.Asked, " "); got != "drop drop drop drop" {
		t.Errorf("the engine asked %s: until there is an answer, and once more", got)
	}
}

// A lease that the client has made shorter than a round trip would end before each grant.
func TestAGrantThatComesTooLate(t *testing.T) {
	for line, waits := range map[string]bool{
		"LOCK k": true, "LOCK k PX 1000": false, "LOCK k MAXHOLD 1000": false, "TRYLOCK k": false, "LOCK k WAIT 5": false, "LOCK k MAXHOLD 60000": true,
	} {
		w := newLockWorld(t)
		a := w.client(1).sends(line)
		w.Time = w.Time.Add(31 * time.Second)
		w.Own.Answers = []any{locktest.Numbers(1)} // to the rollback
		a.answered(grantOfFence(7), nil)
		if waits {
			a.got()
		} else {
			a.got("(nil)")
		}
		if w.Holds() != 0 || w.asks(1) != waits {
			t.Errorf("%s: %d holds, waits: %v", line, w.Holds(), w.asks(1))
		}
	}
}

// The grant that the acquire was to deepen is over. Its client hears of that, and gets a new one by another name.
func TestAReentryOfALostGrantAsksUnderANewName(t *testing.T) {
	for _, line := range []string{"TRYLOCK k", "LOCK k", "FAIRLOCK k", "LOCK k SHARED"} {
		w := newLockWorld(t)
		a := w.client(1).sends("LOCK k")
		name := a.Sent[0].Args[0]
		a.answered(grantOfFence(6), nil)
		a.sends(line)
		if one := a.Sent[0]; one.Script.Name() != "deepen" || one.Args[0] != name {
			t.Fatalf("%s: sent %s %q", line, one.Script.Name(), one.Args)
		}
		w.Own.Answers = []any{locktest.Numbers(1, 7, 1, 0, 0)}
		a.answered(locktest.Numbers(-1), nil)
		w.confirm()
		a.got(":6", ":7")
		if len(w.Own.Args) != 1 || w.Own.Args[0][0] == name {
			t.Errorf("%s, behind %s: then %q", line, name, w.Own.Args)
		}
		if w.Pass(time.Second); len(w.lost) != 1 {
			t.Errorf("%s: losses %q", line, w.lost)
		}
	}
}

func TestAnOverwrittenKeyIsTheLossOfTheHoldThere(t *testing.T) {
	w := newLockWorld(t)
	a := w.client(1).sends("LOCK k")
	a.answered(grantOfFence(7), nil)
	a.sends("LOCK k")
	a.answered(resp.Value{Kind: resp.SimpleError, Str: []byte("WRONGTYPE Operation against a key")}, nil)
	a.got(":7", "-LOSTLEASE the lock was lost before this command: its lease ended, or it was taken away")
	if w.Holds() != 0 {
		t.Error("the hold is still known")
	}
}
