package lockcmds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// command is a lock command that notes what it is told.
type command struct {
	postpone time.Duration // it waits for its hash slot for so long
	told     []string
}

func (a *command) Postponed() (script.Call, time.Duration) {
	return script.Extend{Key: "k"}.Call(), a.postpone
}

func (a *command) Answered(o callOutcome) []byte {
	said := string(o.Reply.Str)
	switch {
	case errors.Is(o.Err, contract.ErrInDoubt):
		said = "lost"
	case o.Err != nil:
		said = o.Err.Error()
	case said == "":
		said = "answer"
	}
	a.told = append(a.told, said)
	return []byte("+OK\r\n")
}

// A call is sent once, unless Redis has refused it because its hash slot is being moved.
func TestACallHasOneOutcome(t *testing.T) {
	moved := locktest.Refusal("TRYAGAIN the slot is being moved")
	for _, c := range []struct {
		name    string
		command command
		first   any // the outcome on the session's own connection
		then    []any
		want    string
	}{
		{"answered", command{}, locktest.Numbers(1), nil, "answer"},
		{"not sent", command{}, contract.ErrUnsent, nil, "not sent"},
		{"lost", command{postpone: time.Minute}, contract.ErrInDoubt, nil, "lost"},
		{"the slot is being moved", command{postpone: time.Minute}, moved, []any{moved, contract.ErrUnsent, locktest.Refusal("LOADING soon"), locktest.Numbers(1)}, "answer"},
		{"it is being moved for too long", command{postpone: time.Nanosecond}, moved, []any{moved}, string(moved.Str)},
		{"no slot is needed", command{}, moved, nil, string(moved.Str)},
		{"lost when the slot has been moved", command{postpone: time.Minute}, moved, []any{moved, contract.ErrInDoubt}, "lost"},
		{"refused when it has been moved", command{postpone: time.Minute}, moved, []any{locktest.Refusal("NOPERM no")}, "NOPERM no"},
	} {
		for _, hungUp := range []bool{false, true} {
			w, s, a := newCallWorld(t), &locktest.Client{}, c.command
			w.Own.Answers = c.then
			w.Send(script.Extend{Key: "k"}.Call(), &callRequest{Session: s, For: &a})
			w.Time = w.Time.Add(time.Millisecond)
			s.Ended = hungUp
			err, _ := c.first.(error)
			v, _ := c.first.(resp.Value)
			s.Answer(v, err)
			w.Settle()
			if got := strings.Join(a.told, ", "); got != c.want || w.Busy() || len(w.Own.Asked) != len(c.then) {
				t.Errorf("%s: told %q after %d scripts, want %q; busy: %v", c.name, got, len(w.Own.Asked), c.want, w.Busy())
			}
			if !hungUp && len(s.Replies) != 1 {
				t.Errorf("%s: %d replies", c.name, len(s.Replies))
			}
		}
	}
}
