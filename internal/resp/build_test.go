package resp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuildersSpeakBothVersions(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"error", AppendError(nil, NotHeld, "not the holder"), "-NOTHELD not the holder\r\n"},
		{"error text cannot break out of its line", AppendError(nil, Err, "a\r\n+OK"), "-ERR a  +OK\r\n"},
		{"raw error", AppendRawError(nil, "NOAUTH no\n"), "-NOAUTH no \r\n"},
		{"command of strings", AppendCommand(nil, "GET", "", "a\r\n"), "*3\r\n$3\r\nGET\r\n$0\r\n\r\n$3\r\na\r\n\r\n"},
		{"command of bytes", AppendCommand([]byte("x"), []byte("PING")), "x*1\r\n$4\r\nPING\r\n"},
		{"map, version 2", AppendMapHeader(nil, 2, 6), "*12\r\n"},
		{"map, version 3", AppendMapHeader(nil, 3, 6), "%6\r\n"},
		{"null, version 2", AppendNull(nil, 2), "$-1\r\n"},
		{"null, version 3", AppendNull(nil, 3), "_\r\n"},
		{"push", AppendPushHeader(nil, 4), ">4\r\n"},
	}
	for _, c := range tests {
		if string(c.got) != c.want {
			t.Errorf("%s: got %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestSplitAppends(t *testing.T) {
	raw := AppendCommand(nil, "SET", "k", "v")
	for _, room := range []int{0, 2, 10} {
		dst := append(make([][]byte, 0, 1+room), []byte("first"))
		if diff := cmp.Diff([]string{"first", "SET", "k", "v"}, toStrings(Split(raw, dst))); diff != "" {
			t.Errorf("with room for %d (-want +got):\n%s", room, diff)
		}
	}
	if got := Split(raw[:len(raw)-1], nil); len(got) != 0 {
		t.Errorf("split of half a command: %q", got)
	}
}

// TestCodesIsTheClosedList compares Codes with the constants declared in errors.go.
func TestCodesIsTheClosedList(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, Code(text))
		}
		return true
	})
	if diff := cmp.Diff(declared, Codes()); diff != "" || len(declared) == 0 {
		t.Errorf("(-declared +Codes()):\n%s", diff)
	}
	for i, code := range Codes() {
		if slices.Index(Codes(), code) != i {
			t.Errorf("%s is there twice", code)
		}
		for _, c := range []byte(code) {
			if c < 'A' || c > 'Z' {
				t.Errorf("%q is not one word of capitals", code)
			}
		}
	}
}
