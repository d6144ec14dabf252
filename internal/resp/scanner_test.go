package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// goodReplies are whole replies of every kind.
var goodReplies = []struct {
	name  string
	reply string
	kind  Kind
}{
	{"simple string", "+OK\r\n", SimpleString},
	{"empty simple string", "+\r\n", SimpleString},
	{"simple string with lone breaks", "+a\rb\nc\r\r\n", SimpleString},
	{"error", "-ERR no\r\n", SimpleError},
	{"integer", ":-42\r\n", Integer},
	{"integer with plus", ":+42\r\n", Integer},
	{"bulk", "$5\r\na\r\nbc\r\n", Bulk},
	{"empty bulk", "$0\r\n\r\n", Bulk},
	{"null bulk", "$-1\r\n", Bulk},
	{"array", "*2\r\n$1\r\na\r\n:1\r\n", Array},
	{"empty array", "*0\r\n", Array},
	{"null array", "*-1\r\n", Array},
	{"nested", "*3\r\n*2\r\n*0\r\n$1\r\na\r\n*1\r\n*-1\r\n+x\r\n", Array},
	{"null", "_\r\n", Null},
	{"true", "#t\r\n", Boolean},
	{"double", ",-1.5e+10\r\n", Double},
	{"infinite", ",-inf\r\n", Double},
	{"not a number", ",nan\r\n", Double},
	{"big number", "(-3492890328409238509324850943850943825024385\r\n", BigNumber},
	{"bulk error", "!5\r\nERR a\r\n", BulkError},
	{"verbatim", "=7\r\ntxt:abc\r\n", Verbatim},
	{"map", "%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n_\r\n#f\r\n", Map},
	{"set", "~2\r\n:1\r\n:2\r\n", Set},
	{"push", ">2\r\n+message\r\n$1\r\na\r\n", Push},
	{"attribute in front", "|1\r\n+ttl\r\n:3\r\n+OK\r\n", SimpleString},
	{"aggregate in an attribute", "|1\r\n*1\r\n+ttl\r\n%1\r\n:1\r\n:2\r\n$-1\r\n", Bulk},
	{"attribute of an attribute's value", "|1\r\n+a\r\n|1\r\n+b\r\n:1\r\n:2\r\n*0\r\n", Array},
	{"two attributes", "|1\r\n+a\r\n:1\r\n|0\r\n#t\r\n", Boolean},
	{"attribute inside", "*2\r\n|1\r\n+a\r\n:1\r\n:5\r\n:6\r\n", Array},
	{"double of text", ",x\r\n", Double},
	{"empty double", ",\r\n", Double},
	{"big number of text", "(abc\r\n", BigNumber},
	{"big number with lone breaks", "(1\r2\n3\r\r\n", BigNumber},
	{"empty big number", "(\r\n", BigNumber},
	{"null with text", "_a\r\n", Null},
	{"neither true nor false", "#x\r\n", Boolean},
	{"empty boolean", "#\r\n", Boolean},
	{"odd numbers inside", "%2\r\n(abc\r\n,x\r\n_1.5\r\n~2\r\n#tf\r\n_x\r\n", Map},
}

// oddIntegers are whole replies for a Scanner, which looks only for their end. Decode, which has to know the number,
// refuses them.
var oddIntegers = []string{":12x\r\n", ":-\r\n", ":\r\n", ":1.5\r\n", ":9223372036854775808\r\n"}

func TestScannerPassesIntegersThatAreNone(t *testing.T) {
	for _, reply := range oddIntegers {
		want := cut{Ends: []int{len(reply), 2 * len(reply)}, Kinds: "::"}
		for _, size := range []int{all, 1, 2, 3} {
			if diff := cmp.Diff(want, scanned(t, []byte(reply+reply), size)); diff != "" {
				t.Errorf("%q in pieces of %d (-want +got):\n%s", reply, size, diff)
			}
		}
		if v, _, err := Decode([]byte(reply)); err == nil {
			t.Errorf("%q decodes to %+v", reply, v)
		}
	}
}

// cut is what a Scanner made of a stream of replies: their ends, kinds, and an error.
type cut struct {
	Ends  []int
	Kinds string
	Err   bool
}

func scanned(t tester, stream []byte, sizes ...int) (c cut) {
	t.Helper()
	var s Scanner
	at := 0
	for piece := 0; at < len(stream); piece++ {
		// A copy, so that whatever the Scanner kept of an earlier piece is gone.
		b := bytes.Clone(stream[at:min(len(stream), at+sizes[min(piece, len(sizes)-1)])])
		for len(b) > 0 {
			n, done, err := s.Scan(b)
			if err != nil {
				if _, _, again := s.Scan(b); again == nil {
					t.Fatalf("error %v does not stay", err)
				}
				c.Err = true
				return c
			}
			if n == 0 || n > len(b) || !done && n < len(b) {
				t.Fatalf("took %d of %d bytes, done %v", n, len(b), done)
			}
			at, b = at+n, b[n:]
			if done {
				c.Ends = append(c.Ends, at)
				c.Kinds += string(rune(s.Kind()))
			}
		}
	}
	return c
}

func TestScannerFindsTheEndOfEveryKind(t *testing.T) {
	for _, c := range goodReplies {
		t.Run(c.name, func(t *testing.T) {
			want := cut{Ends: []int{len(c.reply), 2 * len(c.reply)}, Kinds: strings.Repeat(string(rune(c.kind)), 2)}
			for _, size := range []int{all, 1, 2, 3, 5} {
				if diff := cmp.Diff(want, scanned(t, []byte(c.reply+c.reply), size)); diff != "" {
					t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

var badReplies = []struct{ name, reply string }{
	{"unknown type", "x\r\n"},
	{"header without digits", "$\r\n"},
	{"header with text", "*1a\r\n"},
	{"header ended by newline alone", "*1\n"},
	{"negative length", "$-2\r\n"},
	{"length minus twelve", "$-12\r\n"},
	{"length minus", "$-\r\n"},
	{"negative map", "%-1\r\n"},
	{"negative attribute", "|-1\r\n"},
	{"huge length", "$9223372036854775807\r\n"},
	{"huge count inside huge counts", strings.Repeat("%999999999999999999\r\n", 6)},
	{"carriage return without newline", "*1\rx"},
	{"bulk too long", "$1\r\nab\r\n"},
	{"bulk with half a line end", "$1\r\na\rb"},
	{"bulk with the other half of a line end", "$1\r\naX\n"},
	{"streamed string, which no Redis sends", "$?\r\n"},
	{"streamed array", "*?\r\n"},
	{"end of a streamed array", ".\r\n"},
	{"digit and question mark", "$1?\r\n"},
	{"chunk of a streamed string", ";1\r\na\r\n"},
}

func TestScannerRefusesMalformedReplies(t *testing.T) {
	for _, c := range badReplies {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{all, 1, 3} {
				if got := scanned(t, []byte(c.reply), size); !got.Err {
					t.Errorf("in pieces of %d: no error, %+v", size, got)
				}
			}
		})
	}
}

// A Lua script may return a cyclic table, which Redis follows to its stack limit.
func TestScannerFollowsAnyNestingOfArrays(t *testing.T) {
	reply := strings.Repeat("*1\r\n", 1_000_000) + "-ERR reached lua stack limit\r\n"
	want := cut{Ends: []int{len(reply)}, Kinds: "*"}
	if diff := cmp.Diff(want, scanned(t, []byte(reply), 1000)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestScannerKnowsTheKindBeforeTheEnd(t *testing.T) {
	var s Scanner
	for _, step := range []struct {
		piece string
		kind  Kind
	}{{"|1\r\n+a\r\n", 0}, {"*1\r\n:1\r\n", 0}, {"%", Map}, {"1\r\n:1\r\n", Map}, {":2\r\n", Map}, {"|0\r\n", 0}, {"_\r\n", Null}} {
		if _, _, err := s.Scan([]byte(step.piece)); err != nil {
			t.Fatal(err)
		}
		if s.Kind() != step.kind {
			t.Errorf("after %q: kind %q, want %q", step.piece, s.Kind(), step.kind)
		}
	}
}

// replies draws a stream of mostly right replies.
func replies(t *rapid.T) []byte {
	piece := rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
			return rapid.SampledFrom(badReplies).Draw(t, "malformed").reply
		}
		if rapid.IntRange(0, 3).Draw(t, "open") == 0 {
			return rapid.SampledFrom([]string{"*2\r\n", "%1\r\n", "|1\r\n"}).Draw(t, "header")
		}
		return rapid.SampledFrom(goodReplies).Draw(t, "whole").reply
	})
	stream := strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(t, "replies"), "")
	return []byte(stream[:rapid.IntRange(1, len(stream)).Draw(t, "length")])
}

func TestScannerDoesNotDependOnHowBytesAreCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := replies(t)
		whole := scanned(t, stream, all)
		if diff := cmp.Diff(whole, scanned(t, stream, 1)); diff != "" {
			t.Fatalf("%q byte by byte (-whole +cut):\n%s", stream, diff)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 10).Draw(t, "sizes")
		if diff := cmp.Diff(whole, scanned(t, stream, sizes...)); diff != "" {
			t.Fatalf("%q in pieces of %v (-whole +cut):\n%s", stream, sizes, diff)
		}
	})
}

func TestScannerDoesNotAllocate(t *testing.T) {
	var s Scanner
	for _, c := range goodReplies {
		b := []byte(c.reply)
		allocs := testing.AllocsPerRun(100, func() {
			for i := range b {
				if _, done, err := s.Scan(b[i : i+1]); err != nil || done != (i == len(b)-1) {
					t.Fatal(done, err)
				}
			}
			if n, done, err := s.Scan(b); n != len(b) || !done || err != nil {
				t.Fatal(n, done, err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", c.name, allocs)
		}
	}
}

func BenchmarkScanner(b *testing.B) {
	value := fmt.Sprintf("$64\r\n%s\r\n", strings.Repeat("x", 64))
	for _, c := range []struct{ name, stream string }{
		{"OK", "+OK\r\n"},
		{"integer", ":12345\r\n"},
		{"bulk64", value},
		{"bulk64-pipeline16", strings.Repeat(value, 16)},
		{"bulk1M", fmt.Sprintf("$%d\r\n%s\r\n", 1<<20, strings.Repeat("x", 1<<20))},
		{"array20", "*20\r\n" + strings.Repeat(value, 20)},
		{"map10", "%10\r\n" + strings.Repeat("$3\r\nkey\r\n,1.5\r\n", 10)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var s Scanner
			stream := []byte(c.stream)
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				for at := 0; at < len(stream); {
					n, _, err := s.Scan(stream[at:])
					if err != nil {
						b.Fatal(err)
					}
					at += n
				}
			}
		})
	}
}
