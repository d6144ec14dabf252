package session

import (
	"bytes"
	"strings"
	"testing"
)

func TestDisownLeavesNoCredentials(t *testing.T) {
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
		got := bytes.Join(Disown(bytes.Fields([]byte(line))), []byte(" "))
		if string(got) != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if strings.Contains(string(got), "pw") {
			t.Errorf("%s: a password in %s", line, got)
		}
	}
}
