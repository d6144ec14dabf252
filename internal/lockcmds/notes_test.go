package lockcmds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A note goes with its grant: it is there when the grant is answered, at every proxy, and no other holder has it.
func TestANoteIsThatOfItsGrant(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", " SHARED", " LIMIT 3"} {
		p, q := twoProxies(t, nil)
		a, b, c := p.session(3), q.session(3), q.session(3)
		info := func(want string) {
			t.Helper()
			for _, s := range []*session{b, a} {
				if got := s.do("LOCKINFO k"); !strings.Contains(got, want) || strings.Count(got, "note") != strings.Count(got, want) {
					t.Errorf("LOCKINFO k: %s, want %q", got, want)
				}
			}
		}
		fence := a.fence("LOCK k" + kind + " NOTE web1:4711")
		info("note web1:4711")
		if got := a.do("LOCKLIST"); !strings.Contains(got, "note web1:4711") {
			t.Errorf("LOCKLIST: %s", got)
		}
		if kind == "" { // a waiter is handed the lock, with its own note
			waiting := p.session(3)
			waiting.waits("LOCK k NOTE web2")
			a.want("UNLOCK k", ":1")
			fenceIn(t, waiting.reply())
			info("note web2")
			waiting.want("UNLOCK k", ":1")
		} else {
			b.fence("LOCK k" + kind)
			c.fence("FAIRLOCK k" + kind + " NOTE 5")
			if got := c.do("LOCKINFO k"); !strings.Contains(got, "note web1:4711") || !strings.Contains(got, "note 5") {
				t.Errorf("LOCKINFO k: %s", got)
			}
			a.want(fmt.Sprint("EXTENDLOCK k PX 60000 FENCE ", fence), ":1")
			if got := c.do("LOCKINFO k"); !strings.Contains(got, "note web1:4711") {
				t.Errorf("behind an extension: %s", got)
			}
			a.want("UNLOCK k", ":1")
			if got := c.do("LOCKINFO k"); strings.Contains(got, "web1") || !strings.Contains(got, "note 5") {
				t.Errorf("LOCKINFO k: %s", got)
			}
			b.want("UNLOCK k", ":1")
			c.want("UNLOCK k", ":1")
		}
		for _, end := range []string{"UNLOCK k FENCE %d", "FORCEUNLOCK k"} {
			if fence := c.fence("LOCK k" + kind + " NOTE #1{2}"); strings.Contains(end, "%") {
				end = fmt.Sprintf(end, fence)
			}
			a.want(end, ":1")
		}
		b.fence("LOCK k" + kind)
		if got := b.do("LOCKINFO k"); strings.Contains(got, "note") {
			t.Errorf("the next holder has a note: %s", got)
		}
		b.want("UNLOCK k", ":1")
		empty(t, p.srv)
	}
}

func TestTheLatestNoteCounts(t *testing.T) {
	t.Parallel()
	a := startProxy(t, redistest.Start(t), nil).session(2)
	a.fence("LOCK k NOTE " + strings.Repeat("x", 256))
	if got := a.do("LOCKINFO k"); !strings.Contains(got, strings.Repeat("x", 256)) {
		t.Errorf("LOCKINFO k: %s", got)
	}
	a.fence("LOCK k NOTE again")
	if got := a.do("LOCKINFO k"); !strings.Contains(got, "again") {
		t.Errorf("LOCKINFO k: %s", got)
	}
}

// The first renewal of a hold without a note writes who has it, once.
func TestARenewalSaysWhoHasALock(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, func(o *Options) { o.Lease, o.NoteHost = 3*time.Second, "host1" })
	for _, kind := range []string{"", " SHARED", " LIMIT 3"} {
		a, b := p.session(3), q.session(3)
		a.fence("LOCK k" + kind)
		a.fence("LOCK j" + kind + " NOTE mine")
		p.awaitRenewal("j")
		redistest.Eventually(t, patience, "the note", func() bool { return strings.Contains(b.do("LOCKINFO k"), " via host1") })
		if got := b.do("LOCKINFO j"); !strings.Contains(got, "note mine") {
			t.Errorf("LOCKINFO j: %s", got)
		}
		a.want("UNLOCK k", ":1")
		a.want("UNLOCK j", ":1")
	}
}

// A client chooses its name: neither Redis nor the proxy keeps a long one with each of its locks.
func TestALongNameIsCutInNotesAndLists(t *testing.T) {
	w := newLockWorld(t)
	w.limits.NoteHost = "host1"
	a := newClient(1)
	a.caller.Info.Name = strings.Repeat("n", 1<<20)
	h := w.acquire(t, a, "", func(g *table.Grant) { g.Client = w.sessions[1].Client })
	w.Own.Answers = []any{locktest.Numbers(1)}
	w.pass(t, 10*time.Second)
	if note := w.Own.Args[0][3]; !strings.HasSuffix(note, " via host1") || len(note) > 256 {
		t.Errorf("a note of %d bytes: %.20q", len(note), note)
	}
	if n := len(h.Client().Name); n != mostOfName {
		t.Errorf("a name of %d bytes", n)
	}
}

// lock.note may have been off when a hold was first renewed.
func TestAHoldHasItsNoteWhenNotesAreOnAgain(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	a.caller.Info.Name = "me"
	w.acquire(t, a, "", func(g *table.Grant) { g.Client = w.sessions[1].Client })
	w.Own.Answers = []any{locktest.Numbers(1), locktest.Numbers(1), locktest.Numbers(1)}
	var notes []string
	for _, host := range []string{"", "host1", "host1"} {
		w.limits.NoteHost = host
		w.pass(t, 10*time.Second)
		notes = append(notes, w.Own.Args[len(w.Own.Args)-1][3])
	}
	if want := []string{"", "#me via host1", ""}; !slices.Equal(notes, want) {
		t.Errorf("%q, not %q", notes, want)
	}
}
