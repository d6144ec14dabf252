package session

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Only what Redis reads as it is read here may be asked on a connection that others share.
func TestSharedForms(t *testing.T) {
	from := upstream.Identity{User: "u", Password: "p", DB: 3, Proto: 2}
	for _, test := range []struct {
		cmd, sent string // sent: ""; on a connection of its own
		to        upstream.Identity
	}{
		{"SELECT 5", "SELECT 5", upstream.Identity{User: "u", Password: "p", DB: 5, Proto: 2}},
		{"SELECT 05", "", upstream.Identity{}},
		{"SELECT -1", "", upstream.Identity{}},
		{"SELECT 5 6", "", upstream.Identity{}},
		{"AUTH pw", "AUTH pw", upstream.Identity{User: "default", Password: "pw", DB: 3, Proto: 2}},
		{"AUTH a b", "AUTH a b", upstream.Identity{User: "a", Password: "b", DB: 3, Proto: 2}},
		{"AUTH a b c", "", upstream.Identity{}},
		{"HELLO", "HELLO", from},
		{"HELLO 3", "HELLO 3", upstream.Identity{User: "u", Password: "p", DB: 3, Proto: 3}},
		{"HELLO 4", "", upstream.Identity{}},
		{"HELLO 3 BAD", "", upstream.Identity{}},
		{"HELLO 3 SETNAME me", "HELLO 3", upstream.Identity{User: "u", Password: "p", DB: 3, Proto: 3}},
		{"HELLO 3 AUTH a setname SETNAME me", "HELLO 3 AUTH a setname", upstream.Identity{User: "a", Password: "setname", DB: 3, Proto: 3}},
		{"HELLO 3 SETNAME me AUTH a b", "", upstream.Identity{}},
		{"HELLO 3 AUTH a b AUTH c d", "", upstream.Identity{}},
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(test.cmd) {
			args = append(args, []byte(word))
		}
		c := readChange(strings.ToLower(string(args[0])), args)
		sent := c.shared(resp.AppendCommand(nil, args...), args)
		want := []byte(nil)
		if test.sent != "" {
			want = resp.AppendCommand(nil, strings.Fields(test.sent)...)
		}
		if string(sent) != string(want) {
			t.Errorf("%s is sent as %q, want %q", test.cmd, sent, want)
		}
		if got := c.apply(from); test.sent != "" && got != test.to {
			t.Errorf("%s leads to %v, want %v", test.cmd, got, test.to)
		}
	}
}

func TestAnotherCommandChangesNoIdentity(t *testing.T) {
	args := [][]byte{[]byte("NOSUCH"), []byte("3"), []byte("AUTH"), []byte("a"), []byte("b")}
	if c := readChange("nosuch", args); c != (identityChange{}) {
		t.Errorf("%+v", c)
	}
}

func TestWithoutAuthLeavesNoCredentials(t *testing.T) {
	for line, want := range map[string]string{
		"HELLO":                         "HELLO",
		"HELLO 3":                       "HELLO 3",
		"HELLO 3 AUTH a b":              "HELLO 3",
		"HELLO 2 AUTH a b AUTH root pw": "HELLO 2",
		"HELLO 2 auth a b SETNAME n Auth root pw": "HELLO 2 SETNAME n",
		"HELLO 2 SETNAME AUTH AUTH root pw":       "HELLO 2 SETNAME AUTH",
		"HELLO 2 AUTH AUTH AUTH AUTH root pw":     "HELLO 2",
		"HELLO 2 AUTH root":                       "HELLO 2 AUTH",
		"HELLO 2 SETNAME":                         "HELLO 2 SETNAME",
		"HELLO 2 BAD AUTH root pw":                "HELLO 2 BAD",
		"HELLO AUTH root pw":                      "HELLO AUTH root",
	} {
		got := bytes.Join(withoutAuth(bytes.Fields([]byte(line))), []byte(" "))
		if string(got) != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if strings.Contains(string(got), "pw") {
			t.Errorf("%s: a password in %s", line, got)
		}
	}
}
