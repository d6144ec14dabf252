package lockcmds

import (
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

func reentrantClient(library, name string) reentrant {
	return reentrant{Library: library, ClientInfo: contract.ClientInfo{Addr: "10.0.0.1:1", Name: name}}
}

func TestEachNameIsLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	counted := map[bool]int{}
	r := &ReentryRule{Logger: zap.New(core), Counted: func(refused bool) { counted[refused]++ }}
	for _, c := range []reentrant{
		reentrantClient("", ""), reentrantClient("", "worker"), // not announced
		reentrantClient("redis-py", ""), reentrantClient("redis-py", ""), reentrantClient("redis-py", "worker"), reentrantClient("go-redis", "worker"), reentrantClient("go-redis", ""),
	} {
		r.Note(c, "k", false)
	}
	r.Note(reentrantClient("go-redis", ""), "k", true)
	for range 2 {
		r.NoteNotHeld(reentrantClient("go-redis", ""), "k")
	}
	var got []string
	for _, e := range logs.All() {
		m := e.ContextMap()
		got = append(got, m["library"].(string)+"/"+m["name"].(string))
	}
	if want := "redis-py/ redis-py/worker go-redis/ go-redis/"; strings.Join(got, " ") != want {
		t.Errorf("logged %q, want %q", got, want)
	}
	if counted[false] != 7 || counted[true] != 1 {
		t.Errorf("counted %v", counted)
	}
}

// Clients choose names: they fill neither the memory nor the log.
func TestNamesAreBounded(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := &ReentryRule{Logger: zap.New(core)}
	long := strings.Repeat("n", 1<<20)
	for i := range 2 * mostNames {
		r.Note(reentrantClient(long, strconv.Itoa(i)+long), long, false)
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

func TestNilAllowsReentry(t *testing.T) {
	var r *ReentryRule
	r.Note(reentrantClient("redis-py", ""), "k", false)
	if r.Refuses() || new(ReentryRule).Refuses() || !(&ReentryRule{OwnersOnly: true}).Refuses() {
		t.Error("wrong rule")
	}
}

// Tasks that each name an owner know of each other.
func TestReentriesAreCountedUnlessTheOwnerIsNamed(t *testing.T) {
	for owner, want := range map[string]int{"": 1, " OWNER me": 0} {
		w := newLockWorld(t)
		counted := 0
		w.opts.Reentry = &ReentryRule{Counted: func(bool) { counted++ }}
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
