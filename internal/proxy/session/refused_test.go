package session

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
		var r aftermath
		words := []byte(no)
		r.refuse(words, c.wasOK)
		words[1] = '?' // the caller's
		if !r.open() || r.undecided() == c.wasOK {
			t.Fatalf("%+v: %+v", c, r)
		}
		r.leaves(c.more)
		got := ""
		for name := range strings.FieldsSeq(c.commands) {
			reply := []byte(nil)
			if r.open() {
				reply = r.step(name, false)
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

// What was sent behind a refused SELECT would run in another database, and an EXEC behind a refused WATCH would run
// unprotected.
func TestCommandsThatDependOnARefusedOneAreRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		blind, more bool   // at the time when the replies so far leave
		commands    string // a dot: the client reads all replies, and then goes on
		refused     string
	}{
		{"select", false, false, "set get", "oo"}, // the client has seen the refusal
		{"select", false, true, "set client get quit", "xoxo"},
		{"select", false, true, "set . get", "xo"},
		{"select", false, true, "set select get", "xoo"},
		{"select", false, true, "multi set exec get . get", "xxxoo"},
		{"select", false, true, "set multi . set", "xxo"}, // it has seen that MULTI is refused
		{"select", false, true, "reset get", "oo"},
		{"select", true, false, "get . get", "xo"}, // the first reply is that to the command behind it
		{"watch", false, true, "get watch multi set exec get", "xxxxxo"},
		{"watch", false, true, "unwatch multi exec", "ooo"},
		{"watch", false, true, "get . multi exec", "xoo"},
		{"watch", false, false, "multi set exec", "ooo"},
		{"hello", false, true, "get", "o"}, // Redis runs what comes behind a refused login
	} {
		var r aftermath
		r.behind(c.name, []byte("-NO\r\n"), c.blind)
		if r.undecided() {
			r.leaves(c.more)
		}
		got := ""
		for name := range strings.FieldsSeq(c.commands) {
			reply := []byte(nil)
			switch {
			case name == ".":
				if r.undecided() {
					r.leaves(false)
				}
				continue
			case r.open():
				reply = r.step(name, false)
			}
			if reply == nil {
				got += "o"
			} else {
				got += "x"
			}
		}
		if got != c.refused {
			t.Errorf("behind %s, blind %v, more %v: %s: %s, want %s", c.name, c.blind, c.more, c.commands, got, c.refused)
		}
	}
}
