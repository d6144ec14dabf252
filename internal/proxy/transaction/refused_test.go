package transaction

import (
	"strings"
	"testing"
)

func TestARefusedTransactionTakesAllItsCommandsAlong(t *testing.T) {
	const no = "-NO\r\n"
	for _, c := range []struct {
		wasOK, more bool
		commands    string
		refused     string // one letter for each command: x refused, o carried out
	}{
		{false, false, "set exec", "oo"}, // the client has seen the refusal
		{false, true, "set get exec get", "xxxo"},
		{false, true, "set discard get", "xxo"},
		{true, false, "set exec get", "xxo"},
		{false, true, "set reset get", "xoo"},
		{false, true, "set multi set exec", "xooo"},
		{false, true, "set quit", "xo"},
	} {
		var r Refused
		words := []byte(no)
		r.Refuse(words, c.wasOK)
		words[1] = '?' // the caller's
		if !r.Open() || r.Undecided() == c.wasOK {
			t.Fatalf("%+v: %+v", c, r)
		}
		r.Leaves(c.more)
		got := ""
		for name := range strings.FieldsSeq(c.commands) {
			reply := []byte(nil)
			if r.Open() {
				reply = r.Step(name)
			}
			switch string(reply) {
			case no:
				got += "x"
			case "":
				got += "o"
			default:
				t.Errorf("%+v: %q", c, reply)
			}
		}
		if got != c.refused {
			t.Errorf("%s, wasOK %v, more %v: %s, want %s", c.commands, c.wasOK, c.more, got, c.refused)
		}
	}
}
