package lockcmds

import (
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

func TestEachNameIsLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	counted := 0
	r := &Reentries{Logger: zap.New(core), Counted: func() { counted++ }}
	for _, c := range []struct{ library, name string }{
		{"", ""}, {"", "worker"}, // not announced
		{"redis-py", ""}, {"redis-py", ""}, {"redis-py", "worker"}, {"go-redis", "worker"}, {"go-redis", ""},
	} {
		r.Note(contract.ClientInfo{Name: c.name}, c.library, "k")
	}
	for range 2 {
		r.NoteNotHeld(contract.ClientInfo{}, "go-redis", "k")
	}
	var got []string
	for _, e := range logs.All() {
		m := e.ContextMap()
		got = append(got, m["library"].(string)+"/"+m["name"].(string))
	}
	if want := "redis-py/ redis-py/worker go-redis/ go-redis/"; strings.Join(got, " ") != want {
		t.Errorf("logged %q, want %q", got, want)
	}
	if counted != 7 {
		t.Errorf("counted %d", counted)
	}
}

// Clients choose names: they fill neither the memory nor the log.
func TestNamesAreBounded(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := &Reentries{Logger: zap.New(core)}
	long := strings.Repeat("n", 1<<20)
	for i := range 2 * mostNames {
		r.Note(contract.ClientInfo{Name: strconv.Itoa(i) + long}, long, long)
	}
	if logs.Len() != mostNames || len(r.named) != mostNames {
		t.Errorf("%d lines, %d names", logs.Len(), len(r.named))
	}
	for name := range r.named {
		if len(name.client) > longestName+len("library ") {
			t.Fatalf("a name of %d bytes is kept", len(name.client))
		}
	}
}

// Tasks that each name an owner know of each other.
func TestReentriesAreCountedUnlessTheOwnerIsNamed(t *testing.T) {
	for owner, want := range map[string]int{"": 1, " OWNER me": 0} {
		w := newLockWorld(t)
		counted := 0
		w.opts.Reentries = &Reentries{Counted: func() { counted++ }}
		a := w.client(1)
		for holds := range int64(2) {
			a.sends("LOCK k" + owner)
			a.answered(locktest.Numbers(1, 7, holds+1), nil)
		}
		a.got(":7", ":7")
		if counted != want {
			t.Errorf("LOCK k%s twice: %d re-entries, want %d", owner, counted, want)
		}
	}
}

// A release of a lock that is held, or by a client that says which hold it means, is in order.
func TestAReleaseWithoutTheLockIsLogged(t *testing.T) {
	for _, c := range []struct {
		owner  string
		answer resp.Value
		want   int
	}{
		{"", locktest.Numbers(1, 7, 1), 0},
		{"", locktest.Numbers(-1), 1},
		{"me", locktest.Numbers(1, 7, 1), 0},
		{"me", locktest.Numbers(-1), 0},
	} {
		w, a := newLockWorld(t), newClient(1)
		core, logs := observer.New(zap.InfoLevel)
		w.opts.Reentries = &Reentries{Logger: zap.New(core)}
		a.caller.Library = "redis-py"
		w.Start(a.caller, grammar.Command{Verb: grammar.Unlock, Key: lock, Owner: c.owner})
		a.Answer(c.answer, nil)
		if logs.Len() != c.want || len(a.Replies) != 1 {
			t.Errorf("owner %q: %d entries, want %d; replies %q", c.owner, logs.Len(), c.want, a.Replies)
		}
	}
}

func TestASessionIsKnownWhileItHasAHold(t *testing.T) {
	w, a, b := newLockWorld(t), newClient(1), newClient(2)
	h := w.acquire(t, a, "", nil)
	w.begin(&b.caller, lock, "")
	if w.Leave(1) || !w.Leave(2) || !w.Leave(3) {
		t.Error("the wrong session has left")
	}
	w.force(h.Key, fence)
	if !w.Leave(1) || !w.noWaiter() {
		t.Error("a session without holds is known")
	}
}
