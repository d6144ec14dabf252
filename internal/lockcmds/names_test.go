package lockcmds

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Clients choose how long a name is, and a call has it many times. When the call is in the buffer of its connection,
// only the name itself is kept.
func TestACommandKeepsNoNamesOfItsCall(t *testing.T) {
	name := strings.Repeat("n", 4<<10)
	for _, line := range []string{"LOCKINFO " + name, "FORCEUNLOCK " + name, "UNLOCK " + name + " FENCE 7"} {
		verb, _, _ := strings.Cut(line, " ")
		w := newLockWorld(t)
		c := w.client(1).sends(line)
		call := c.Sent[0].Call
		var names []weak.Pointer[byte]
		for _, text := range slices.Concat(call.Keys, call.Args) {
			if len(text) > len(name) {
				names = append(names, weak.Make(unsafe.StringData(text)))
			}
		}
		call, c.Sent[0].Call = script.Call{}, script.Call{}
		runtime.GC()
		for _, kept := range names {
			if kept.Value() != nil {
				t.Errorf("%s: a name of the call is kept", verb)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: the call has no names", verb)
		}
		runtime.KeepAlive(c.Sent)
	}
}
