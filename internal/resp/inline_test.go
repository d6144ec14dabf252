package resp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitInlineIsSdssplitargs(t *testing.T) {
	tests := []struct {
		line string
		want []string // nil: unbalanced
	}{
		{"", []string{}},
		{" \t\v\f\r\n ", []string{}},
		{"GET key", []string{"GET", "key"}},
		{"  GET   key  ", []string{"GET", "key"}},
		{`SET k "a b"`, []string{"SET", "k", "a b"}},
		{`""`, []string{""}},
		{`'' ""`, []string{"", ""}},
		{`"\x41\xfF\x4g\n\r\t\b\a\q\""`, []string{"A\xffx4g\n\r\t\b\aq\""}},
		{`"\x4"`, []string{"x4"}},
		{`'a\'b\n"'`, []string{`a'b\n"`}},
		{`a"b c"`, []string{"ab c"}},
		{`a'b c'`, []string{"ab c"}},
		{"a\vb\fc", []string{"a\vb\fc"}},
		{"\"a\"\vb", []string{"a", "b"}},
		{"a\tb\rc\nd", []string{"a", "b", "c", "d"}},
		{`a\x41`, []string{`a\x41`}},
		{"a\x00b", []string{"a"}},
		{"\"a\x00\"", nil},
		{`"a`, nil},
		{`'a`, nil},
		{`"a\`, nil},
		{`"a\"`, nil},
		{`"a"b`, nil},
		{`'a'b`, nil},
		{`"a""b"`, nil},
		{`a"`, nil},
		{`"`, nil},
	}
	for _, c := range tests {
		args, ok := splitInline([]byte(c.line))
		if ok != (c.want != nil) {
			t.Errorf("%q: ok = %v", c.line, ok)
			continue
		}
		if diff := cmp.Diff(c.want, toStrings(args)); ok && diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.line, diff)
		}
	}
}

func TestInlineArgumentsDoNotShareMemory(t *testing.T) {
	args, _ := splitInline([]byte("a b c"))
	_ = append(args[0], 'x')
	if diff := cmp.Diff([]string{"a", "b", "c"}, toStrings(args)); diff != "" {
		t.Errorf("after an append to the first (-want +got):\n%s", diff)
	}
}

func TestGuardGivesUpTheMemoryOfALongLine(t *testing.T) {
	g := NewGuard()
	long := make([]byte, 60000)
	for i := range long {
		long[i] = 'a'
	}
	if _, n, err := g.Next(append(long, '\n')); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	g.Trim()
	if kept := cap(g.inline) + cap(g.tokens.text); kept > 2*keepInline {
		t.Errorf("kept %d bytes", kept)
	}
}

// splitInline is tokens.split for one line. The arguments are the caller's own.
func splitInline(line []byte) (args [][]byte, ok bool) {
	var t tokens
	if !t.split(line) {
		return nil, false
	}
	args = make([][]byte, len(t.ends))
	for i := range args {
		args[i] = t.token(i)
	}
	return args, true
}
