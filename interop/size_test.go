//go:build interop

package interop

import (
	"os"
	"testing"
)

// mostBytes is the size that the program may have, as make builds it. A library that calls methods by names which the
// linker does not know, or imports text/template, adds 12 MB: then the linker keeps all methods, rueidis's command
// builders among them.
const mostBytes = 20 << 20

func TestTheProgramIsSmall(t *testing.T) {
	if os.Getenv("LOCKPROXY_BINARY") == "" {
		t.Skip("the program was not built by make")
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("the program has %d bytes, more than %d", info.Size(), mostBytes)
	}
}
