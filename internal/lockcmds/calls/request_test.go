package calls

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// client is a session that sends one call.
type client struct {
	contract.Session
	sent    contract.Call
	ended   bool
	replies []string
}

func (c *client) Script(call contract.Call) { c.sent = call }
func (c *client) Reply(reply []byte)        { c.replies = append(c.replies, string(reply)) }
func (c *client) Do(f func()) bool {
	if !c.ended {
		f()
	}
	return !c.ended
}

// command is an Asker that notes what it is told.
type command struct {
	w        *world
	again    bool          // it can be repeated
	postpone time.Duration // it waits for its hash slot for so long
	told     []string
	outcome  Outcome
}

func (a *command) Again() (script.Call, bool) { return script.Extend{Key: "k"}.Call(), a.again }
func (a *command) Postponed() (script.Call, time.Duration) {
	return script.Extend{Key: "k"}.Call(), a.postpone
}

func (a *command) Doubted(sentAt time.Time) {
	a.told = append(a.told, "doubt "+a.w.now.Sub(sentAt).String())
}

func (a *command) Answered(o Outcome) []byte {
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
	return []byte("reply")
}

func TestALostAnswerIsDoubtedOnceAndAskedForAgain(t *testing.T) {
	moved := refusal("TRYAGAIN the slot is being moved")
	for _, c := range []struct {
		name     string
		command  command
		first    any // the outcome on the session's own connection
		copies   []any
		want     string
		repeated bool
	}{
		{"answered", command{again: true}, number(1), nil, "answer", false},
		{"not sent", command{again: true}, contract.ErrUnsent, nil, "not sent", false},
		{"cannot be repeated", command{}, contract.ErrInDoubt, nil, "in doubt", false},
		{"a copy is answered", command{again: true}, contract.ErrInDoubt, []any{number(1)}, "doubt 1ms, answer", true},
		{
			"copies are lost, refused, not sent", command{again: true}, contract.ErrInDoubt,
			[]any{contract.ErrInDoubt, refusal("LOADING soon"), contract.ErrUnsent, number(1)}, "doubt 1ms, answer", true,
		},
		{"a refusal of the copy is none of the call", command{again: true}, contract.ErrInDoubt, []any{refusal("NOPERM no")}, "doubt 1ms, in doubt", true},
		{"no copy is answered", command{again: true}, contract.ErrInDoubt, nil, "doubt 1ms, in doubt", true},
		{"the slot is being moved", command{postpone: time.Minute}, moved, []any{moved, number(1)}, "answer", false},
		{"the slot is being moved for too long", command{postpone: time.Nanosecond}, moved, []any{moved}, string(moved.Str), false},
		{"no slot is needed", command{}, moved, nil, string(moved.Str), false},
		{"lost when the slot has been moved", command{postpone: time.Minute}, moved, []any{moved, contract.ErrInDoubt, number(1)}, "doubt 0s, answer", true},
		{"lost, and then the slot is being moved for too long", command{postpone: 50 * time.Millisecond}, moved, []any{contract.ErrInDoubt, moved}, "doubt 0s, in doubt", true},
	} {
		for _, hungUp := range []bool{false, true} {
			w, s, a := newWorld(t), &client{}, c.command
			w.own.answers = c.copies
			a.w = w
			q := &Request{Session: s, For: &a}
			w.Send(script.Extend{Key: "k"}.Call(), q)
			w.now = w.now.Add(time.Millisecond)
			s.ended = hungUp
			var out []byte
			if err, failed := c.first.(error); failed {
				out = s.sent.For.Done(resp.Value{}, err)
			} else {
				out = s.sent.For.Done(c.first.(resp.Value), nil)
			}
			if out != nil {
				s.Reply(out)
			}
			w.work()
			if got := strings.Join(a.told, ", "); got != c.want || a.outcome.Repeated != c.repeated || w.Busy() {
				t.Errorf("%s: told %q, repeated: %v, want %q; busy: %v", c.name, got, a.outcome.Repeated, c.want, w.Busy())
			}
			if want := 1; !hungUp && len(s.replies) != want {
				t.Errorf("%s: %d replies", c.name, len(s.replies))
			}
		}
	}
}

// A pipelined call keeps its place among the replies.
func TestTheReplyOfAPipelinedCallGoesToItsSlot(t *testing.T) {
	w, s := newWorld(t), &client{}
	a := &command{w: w, again: true}
	w.own.answers = []any{number(1)}
	q := &Request{Session: s, For: a, Pipelined: true}
	w.Send(script.Extend{Key: "k"}.Call(), q)
	if out := s.sent.For.Done(resp.Value{}, contract.ErrInDoubt); out != nil || !s.sent.Pipelined {
		t.Fatalf("reply %q, pipelined: %v", out, s.sent.Pipelined)
	}
	late := ""
	s.sent.For.Late(func(reply []byte) { late = string(reply) })
	w.work()
	if late != "reply" || len(s.replies) > 0 {
		t.Errorf("late %q, %d replies", late, len(s.replies))
	}
}

func TestACopyIsSentForAsLongAsAFailoverTakes(t *testing.T) {
	for _, c := range []struct{ failover, want time.Duration }{
		{0, DoubtLimit},
		{time.Second, DoubtLimit},
		{10 * time.Second, 10*time.Second + afterFailover},
		{time.Hour, 30 * time.Second}, // the lease
	} {
		w := newWorld(t)
		w.Failover = func() time.Duration { return c.failover }
		if got := w.DoubtLimit(); got != c.want {
			t.Errorf("failover %v: %v, want %v", c.failover, got, c.want)
		}
		s, a := &client{}, &command{w: w, again: true}
		w.Send(script.Extend{Key: "k"}.Call(), &Request{Session: s, For: a})
		begun := w.now
		s.sent.For.Done(resp.Value{}, contract.ErrInDoubt)
		w.work()
		if took := w.now.Sub(begun); took < c.want-2*time.Second || took > c.want {
			t.Errorf("failover %v: asked for %v, want %v", c.failover, took, c.want)
		}
	}
}
