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
	w        *callWorld
	again    bool          // it can be repeated
	postpone time.Duration // it waits for its hash slot for so long
	told     []string
	outcome  callOutcome
}

func (a *command) Again() (script.Call, bool) { return script.Extend{Key: "k"}.Call(), a.again }
func (a *command) Postponed() (script.Call, time.Duration) {
	return script.Extend{Key: "k"}.Call(), a.postpone
}

func (a *command) Doubted(sentAt time.Time) {
	a.told = append(a.told, "doubt "+a.w.Time.Sub(sentAt).String())
}

func (a *command) Answered(o callOutcome) []byte {
	a.outcome = o
	said := string(o.Reply.Str)
	switch {
	case errors.Is(o.Err, contract.ErrInDoubt):
		said = "in doubt"
	case o.Err != nil:
		said = o.Err.Error()
	case said == "":
		said = "answer"
	}
	a.told = append(a.told, said)
	return []byte("+OK\r\n")
}

func TestALostAnswerIsDoubtedOnceAndAskedForAgain(t *testing.T) {
	moved := locktest.Refusal("TRYAGAIN the slot is being moved")
	for _, c := range []struct {
		name     string
		command  command
		first    any // the outcome on the session's own connection
		copies   []any
		want     string
		repeated bool
	}{
		{"answered", command{again: true}, locktest.Numbers(1), nil, "answer", false},
		{"not sent", command{again: true}, contract.ErrUnsent, nil, "not sent", false},
		{"cannot be repeated", command{}, contract.ErrInDoubt, nil, "in doubt", false},
		{"a copy is answered", command{again: true}, contract.ErrInDoubt, []any{locktest.Numbers(1)}, "doubt 1ms, answer", true},
		{
			"copies are lost, refused, not sent",
			command{again: true},
			contract.ErrInDoubt,
			[]any{contract.ErrInDoubt, locktest.Refusal("LOADING soon"), contract.ErrUnsent, locktest.Numbers(1)},
			"doubt 1ms, answer", true,
		},
		{"a refusal of the copy is none of the call", command{again: true}, contract.ErrInDoubt, []any{locktest.Refusal("NOPERM no")}, "doubt 1ms, in doubt", true},
		{"no copy is answered", command{again: true}, contract.ErrInDoubt, nil, "doubt 1ms, in doubt", true},
		{"the slot is being moved", command{postpone: time.Minute}, moved, []any{moved, locktest.Numbers(1)}, "answer", false},
		{"the slot is being moved for too long", command{postpone: time.Nanosecond}, moved, []any{moved}, string(moved.Str), false},
		{"no slot is needed", command{}, moved, nil, string(moved.Str), false},
		{"lost when the slot has been moved", command{postpone: time.Minute}, moved, []any{moved, contract.ErrInDoubt, locktest.Numbers(1)}, "doubt 0s, answer", true},
		{"lost at the end of that time", command{postpone: time.Nanosecond}, moved, []any{contract.ErrInDoubt, locktest.Numbers(1)}, "doubt 0s, answer", true},
		{"lost, and then the slot is being moved for too long", command{postpone: 50 * time.Millisecond}, moved, []any{contract.ErrInDoubt, moved}, "doubt 0s, in doubt", true},
	} {
		for _, hungUp := range []bool{false, true} {
			w, s, a := newCallWorld(t), &locktest.Client{}, c.command
			w.Own.Answers = c.copies
			a.w = w
			q := &callRequest{Session: s, For: &a}
			w.Send(script.Extend{Key: "k"}.Call(), q)
			w.Time = w.Time.Add(time.Millisecond)
			s.Ended = hungUp
			err, _ := c.first.(error)
			v, _ := c.first.(resp.Value)
			s.Answer(v, err)
			w.Settle()
			if got := strings.Join(a.told, ", "); got != c.want || a.outcome.Repeated != c.repeated || w.Busy() {
				t.Errorf("%s: told %q, repeated: %v, want %q; busy: %v", c.name, got, a.outcome.Repeated, c.want, w.Busy())
			}
			if !hungUp && len(s.Replies) != 1 {
				t.Errorf("%s: %d replies", c.name, len(s.Replies))
			}
		}
	}
}

func TestACopyIsSentForAsLongAsAFailoverTakes(t *testing.T) {
	for _, c := range []struct{ failover, want time.Duration }{
		{0, doubtLimit},
		{time.Second, doubtLimit},
		{10 * time.Second, 10*time.Second + afterFailover},
		{time.Hour, 30 * time.Second}, // the lease
	} {
		w := newCallWorld(t)
		w.Failover = func() time.Duration { return c.failover }
		if got := w.DoubtLimit(); got != c.want {
			t.Errorf("failover %v: %v, want %v", c.failover, got, c.want)
		}
		s, a := &locktest.Client{}, &command{w: w, again: true}
		w.Send(script.Extend{Key: "k"}.Call(), &callRequest{Session: s, For: a})
		begun := w.Time
		s.Answer(resp.Value{}, contract.ErrInDoubt)
		w.Settle()
		if took := w.Time.Sub(begun); took < c.want-2*time.Second || took > c.want {
			t.Errorf("failover %v: asked for %v, want %v", c.failover, took, c.want)
		}
	}
}
