package holds

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/ledger"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

func TestAReleaseOfAnothersHoldHasAFieldOfItsOwn(t *testing.T) {
	w, a := newWorld(t), newClient(1)
	s, own := w.Begin(&a.caller, lock, "")
	_, named := w.Begin(&a.caller, lock, "me")
	name := func(k ledger.Key, spent, anew bool) string {
		return w.NameField(s, &ledger.Release{Key: k, Lowered: spent}, 9, anew)
	}
	for _, c := range []struct {
		got, want string
	}{
		{name(own, true, false), ""},
		{name(named, true, false), s.Name},
		{name(named, false, false), s.Name + ":9"},
		{name(named, true, true), s.Name + ":9"},
	} {
		if c.got != c.want {
			t.Errorf("field %q, want %q", c.got, c.want)
		}
	}
	for range 2 * mostFields { // a client chooses how many
		name(named, false, false)
	}
	if got := name(named, false, false); got != s.Name || s.removing != mostFields {
		t.Errorf("field %q, %d are being removed", got, s.removing)
	}
}

func TestAFieldThatNoCopyNeedsGoes(t *testing.T) {
	const another = ":9" // behind the session's name: the field of a release of another's hold
	for _, c := range []struct {
		name, field    string
		holds          int64
		left, repeated bool
		doubted, ended bool
		goes           bool
	}{
		{"of a release of another's hold", another, 0, true, false, false, false, true},
		{"the lock is free", another, 0, false, false, false, false, false},
		{"a copy may come", another, 0, true, true, false, false, false},
		{"of the session, without holds", "", 0, true, false, false, false, true},
		{"of the session, with holds", "", 1, true, false, false, false, false},
		{"of the session, and the lock is free", "", 0, false, false, false, false, false},
		{"of a session with a call in doubt", "", 0, true, false, true, false, false},
		{"of a session that has ended", "", 1, true, false, false, true, true},
		{"of a session that has ended, with a call in doubt", "", 1, true, false, true, true, false},
	} {
		w, a := newWorld(t), newClient(1)
		s, _ := w.Begin(&a.caller, lock, "me")
		s.Doubted, s.ended = c.doubted, c.ended
		before := s.removing
		if c.field != "" {
			s.removing++
		}
		part := script.Part{Owner: "me", Session: s.Name + c.field, Request: 9, Fence: fence, Holds: c.holds}
		r, ok := w.Field(s, part, lock, c.left, c.repeated)
		if ok != c.goes {
			t.Errorf("%s: it goes: %v", c.name, ok)
			continue
		}
		if ok {
			w.Own.Answers = []any{goesOn}
			w.Calls.RollBack(r)
			w.Work()
			args := w.Own.Args[0]
			if args[argHolds] != "0" || args[argGrace] != "-1" || !strings.HasSuffix(args[argField], c.field+"}") {
				t.Errorf("%s: removed by %q", c.name, args)
			}
		}
		if s.removing != before {
			t.Errorf("%s: %d fields count as being removed", c.name, s.removing)
		}
	}
	w, a := newWorld(t), newClient(1)
	s, _ := w.Begin(&a.caller, lock, "")
	if _, ok := w.Field(s, script.Part{Owner: s.Name}, lock, true, false); ok {
		t.Error("an owner of one session has no field")
	}
}
