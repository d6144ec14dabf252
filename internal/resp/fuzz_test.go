package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/redcon"
)

// FuzzGuard: however the bytes are cut, the verdict is one; and what the guard lets through is safe for redcon, both
// its ReadNextCommand and the Reader of its server, which see the same arguments.
func FuzzGuard(f *testing.F) {
	for _, c := range guardCases {
		if len(c.input) < 1000 {
			f.Add([]byte(c.input), uint8(3), false)
		}
	}
	for _, input := range []string{
		"*1\r\n$9223372036854775807\r\n", "*2147483647\r\n", "*1\r\n$0\r\n\r\n", "*1\r\n$536870913\r\n",
		"*1\r\n$16385\r\n", "*11\r\n", "*1\r\n$-9223372036854775808\r\n", "*-9223372036854775808\r\n*9223372036854775808\r\n",
	} {
		f.Add([]byte(input), uint8(1), true)
	}
	f.Fuzz(func(t *testing.T, input []byte, size uint8, restricted bool) {
		run := func(size int) verdict {
			g := NewGuard()
			g.Restrict(restricted)
			return guarded(t, g, input, size)
		}
		whole := run(all)
		for _, size := range []int{1, int(size) + 1} {
			if diff := cmp.Diff(whole, run(size)); diff != "" {
				t.Fatalf("in pieces of %d (-whole +cut):\n%s", size, diff)
			}
		}
		seen := readByRedcon(t, iotest.OneByteReader(strings.NewReader(whole.Raw)))
		if diff := cmp.Diff(whole.Commands, seen); diff != "" {
			t.Fatalf("guard and redcon's reader (-guard +redcon):\n%s", diff)
		}
	})
}

func readByRedcon(t *testing.T, r io.Reader) (commands [][]string) {
	t.Helper()
	reader := redcon.NewReader(r)
	for {
		command, err := reader.ReadCommand()
		if errors.Is(err, io.EOF) {
			return commands
		}
		if err != nil {
			t.Fatalf("redcon: %v", err)
		}
		commands = append(commands, toStrings(command.Args))
	}
}

// FuzzSplitInline: no line panics, and what was split is found again when it is quoted.
func FuzzSplitInline(f *testing.F) {
	for _, line := range []string{
		"", `SET k "a\x41\n"`, `'it\'s'`, `"\x`, `"\x4`, `"a"b`, "a\x00b", "a\vb", `a"b c"`, "\\", `"\`, "''\t\"\"",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		args, ok := splitInline(line)
		if !ok {
			if args != nil {
				t.Fatalf("unbalanced, but arguments %q", args)
			}
			return
		}
		var quoted strings.Builder
		for _, arg := range args {
			quoted.WriteString(` "`)
			for _, c := range arg {
				fmt.Fprintf(&quoted, `\x%02x`, c)
			}
			quoted.WriteString(`"`)
		}
		again, ok := splitInline([]byte(quoted.String()))
		if diff := cmp.Diff(toStrings(args), toStrings(again)); !ok || diff != "" {
			t.Fatalf("quoted again as %s: %v (-want +got):\n%s", quoted.String(), ok, diff)
		}
	})
}

func addReplies(add func(reply []byte)) {
	for _, c := range goodReplies {
		add([]byte(c.reply))
	}
	for _, c := range badReplies {
		add([]byte(c.reply))
	}
	for _, reply := range oddIntegers {
		add([]byte(reply))
	}
	for _, reply := range []string{"$9223372036854775807\r\n", "*2147483647\r\n", "$536870913\r\n", "%4611686018427387904\r\n"} {
		add([]byte(reply))
	}
}

// FuzzScanner: however the bytes are cut, the ends, kinds and errors are the same.
func FuzzScanner(f *testing.F) {
	addReplies(func(reply []byte) { f.Add(reply, uint8(2)) })
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole := scanned(t, stream, all)
		for _, size := range []int{1, int(size) + 1} {
			if diff := cmp.Diff(whole, scanned(t, stream, size)); diff != "" {
				t.Fatalf("in pieces of %d (-whole +cut):\n%s", size, diff)
			}
		}
	})
}

// FuzzDecode: Decode and Scanner agree on where a reply ends and on its kind, except that Decode minds three things the
// Scanner has no reason to look at: depth, the range of integers, the format of verbatim strings.
func FuzzDecode(f *testing.F) {
	addReplies(func(reply []byte) { f.Add(reply) })
	f.Fuzz(func(t *testing.T, reply []byte) {
		v, n, err := Decode(bytes.Clone(reply))
		var s Scanner
		end, done, scanErr := s.Scan(reply)
		switch {
		case err == nil && (!done || end != n || s.Kind() != v.Kind):
			t.Fatalf("decoded %d bytes of kind %q; scanner: %d bytes, done %v, kind %q, %v", n, v.Kind, end, done, s.Kind(), scanErr)
		case err != nil && done:
			var number *strconv.NumError
			if !errors.Is(err, errDepth) && !errors.As(err, &number) && !errors.Is(err, errVerbatim) {
				t.Fatalf("scanned %d bytes of kind %q; decode: %v", end, s.Kind(), err)
			}
		}
	})
}
