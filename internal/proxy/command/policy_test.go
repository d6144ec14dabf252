package command

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

// Names of groups, consumers and streams may be words of the command's own grammar.
func TestPoliciesThatArgumentsChange(t *testing.T) {
	table := NewTable(upstreamTable(t), grammar.Verbs())
	for _, c := range []struct {
		cmd  string
		want Policy
	}{
		{"XREAD STREAMS s 0", Shared},
		{"xread count 5 streams s 0", Shared},
		{"XREAD COUNT BLOCK STREAMS s 0", Shared}, // no number: refused
		{"XREAD STREAMS block block 0 0", Shared},
		{"XREADGROUP GROUP block block STREAMS s >", Shared},
		{"XREADGROUP GROUP streams c COUNT 1 NOACK STREAMS s >", Shared},
		{"XREADGROUP NOACK GROUP g streams STREAMS s >", Shared},
		{"XREAD BLOCK 0 STREAMS s $", PinOnce},
		{"XREAD COUNT 1 block 0 STREAMS s $", PinOnce},
		{"XREADGROUP GROUP streams c BLOCK 0 STREAMS s >", PinOnce},
		{"XREADGROUP GROUP g streams BLOCK 0 STREAMS s >", PinOnce},
		{"XREADGROUP GROUP streams streams NOACK BLOCK 0 STREAMS s >", PinOnce},
		{"XREADGROUP COUNT 1 GROUP streams c BLOCK 0 STREAMS s >", PinOnce},
		{"XREADGROUP BLOCK 0 GROUP streams c STREAMS s >", PinOnce},
		{"XREADGROUP COUNT streams BLOCK 0 GROUP g c STREAMS s >", PinOnce},
		{"XREADGROUP GROUP g c CLAIM 10 BLOCK 0 STREAMS s >", PinOnce}, // an option that is not known here
		{"XREAD NEWOPTION STREAMS s $", PinOnce},
		{"XREAD \u017ftreams s $", PinOnce}, // a letter that only Unicode takes for an s
		{"XREAD", PinOnce},
		{"XREAD COUNT", PinOnce},
		{"XREADGROUP GROUP g", PinOnce},
		{"XREAD " + strings.Repeat("x", 100) + " STREAMS s $", PinOnce},
		{"COMMAND INFO get lock", Augmented},
		{"COMMAND DOCS" + strings.Repeat(" lock", mostNames), Augmented},
		{"COMMAND DOCS" + strings.Repeat(" lock", mostNames+1), Shared}, // the answer could freeze the proxy
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(c.cmd) {
			args = append(args, []byte(word))
		}
		if got := table.Lookup(args[0]).PolicyFor(args); got != c.want {
			t.Errorf("%s: policy %d, want %d", c.cmd, got, c.want)
		}
	}
}

// upstreamTable is what a Redis lists that does not list its commands.
func upstreamTable(t testing.TB) *commands.Table {
	t.Helper()
	return commands.BuiltIn()
}

func TestKeywordsAreASCIIWordsInAnyCase(t *testing.T) {
	for arg, want := range map[string]string{"SetName": "setname", "\u212aILL": "\u212aill", "SET\u0130NFO": "set\u0130nfo", strings.Repeat("a", 65): "?", "": ""} {
		if got := Keyword([][]byte{[]byte(arg)}, 0); got != want {
			t.Errorf("%q: %q, want %q", arg, got, want)
		}
	}
	if got := Keyword(nil, 0); got != "" {
		t.Errorf("no argument: %q", got)
	}
}
