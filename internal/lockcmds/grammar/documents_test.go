package grammar

import (
	"bytes"
	"os"
	"testing"
)

func TestDocumentIsUpToDate(t *testing.T) {
	text, err := os.ReadFile("../../../docs/LOCKS.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Update(text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("<!-- generated: ")) || !bytes.Equal(text, want) {
		t.Error("docs/LOCKS.md is stale: run go generate ./internal/lockcmds/grammar")
	}
}

func TestUpdateRefusesUnknownSections(t *testing.T) {
	for _, text := range []string{"<!-- generated: nope -->\n<!-- end -->", "<!-- generated: verbs -->\n", "<!-- generated: verbs"} {
		if got, err := Update([]byte(text)); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestSyntaxAndArityFollowFromTheArguments(t *testing.T) {
	for _, c := range []struct {
		verb, syntax string
		arity        int
	}{
		{"fairlock", "FAIRLOCK key [SHARED | LIMIT n] [WAIT ms] [PX ms | EX s] [OWNER id] [GRACE ms] [MAXHOLD ms] [SYNC n]", -2},
		{"EXTENDLOCK", "EXTENDLOCK key PX ms | EX s [SHARED] [OWNER id] [FENCE n]", -4},
		{"LockInfo", "LOCKINFO key", 2},
		{"locklist", "LOCKLIST [MATCH pattern] [COUNT n]", -1},
		{"lockslow", "LOCKSLOW GET [n] | LEN | RESET | HELP", -2},
	} {
		s := Find(c.verb)
		if s.Syntax() != c.syntax || s.Arity() != c.arity {
			t.Errorf("%s, arity %d; want %s, %d", s.Syntax(), s.Arity(), c.syntax, c.arity)
		}
	}
}
