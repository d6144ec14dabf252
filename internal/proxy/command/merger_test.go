package command

import (
	"bytes"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commands"
)

// A whole answer to COMMAND is merged once for all clients, until Redis's answer changes.
func TestAWholeAnswerIsMergedOnce(t *testing.T) {
	var c Merger
	whole, other := commands.Snapshot(), []byte("*0\r\n")
	merged := func(reply []byte, proto int) []byte {
		return c.For([][]byte{[]byte("command")}, proto)(bytes.Clone(reply))
	}
	first := merged(whole, 2)
	if &merged(whole, 2)[0] != &first[0] {
		t.Error("the same answer was merged again")
	}
	for what, b := range map[string][]byte{"another protocol": merged(whole, 3), "another answer": merged(other, 2)} {
		if bytes.Equal(b, first) {
			t.Errorf("%s gets the same reply", what)
		}
	}
	if b := merged(whole, 2); !bytes.Equal(b, first) {
		t.Error("the first answer is merged to something else")
	}
}
