package resp

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeKeepsWhatTheVersionsTellApart(t *testing.T) {
	text := func(kind Kind, s string) Value { return Value{Kind: kind, Str: []byte(s)} }
	number := func(n int64) Value { return Value{Kind: Integer, Int: n} }
	tests := []struct {
		reply string
		want  Value
	}{
		{"+OK\r\n", text(SimpleString, "OK")},
		{"-NOSCRIPT no\r\n", text(SimpleError, "NOSCRIPT no")},
		{"!4\r\nERR \r\n", text(BulkError, "ERR ")},
		{":-9223372036854775808\r\n", number(-1 << 63)},
		{"$-1\r\n", Value{Kind: Bulk, Null: true}},
		{"*-1\r\n", Value{Kind: Array, Null: true}},
		{"_\r\n", Value{Kind: Null, Null: true}},
		{"#t\r\n", Value{Kind: Boolean, Int: 1}},
		{"#f\r\n", Value{Kind: Boolean}},
		{",-inf\r\n", text(Double, "-inf")},
		{"(123\r\n", text(BigNumber, "123")},
		{"=8\r\nmkd:*hi*\r\n", text(Verbatim, "*hi*")},
		{"$0\r\n\r\n", text(Bulk, "")},
		{"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", Value{Kind: Array, Elems: []Value{
			number(1), {Kind: Array, Elems: []Value{text(Bulk, "a")}},
		}}},
		{"%1\r\n+proto\r\n:3\r\n", Value{Kind: Map, Elems: []Value{text(SimpleString, "proto"), number(3)}}},
		{"|1\r\n+ttl\r\n:9\r\n>1\r\n:1\r\n", Value{Kind: Push, Elems: []Value{number(1)}}},
	}
	for _, c := range tests {
		got, n, err := Decode([]byte(c.reply + "rest"))
		if err != nil || n != len(c.reply) {
			t.Errorf("%q: n = %d, %v", c.reply, n, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.reply, diff)
		}
		if got, want := got.IsError(), c.reply[0] == '-' || c.reply[0] == '!'; got != want {
			t.Errorf("%q: IsError() = %v", c.reply, got)
		}
	}
}

func TestDecodeAndScannerAgreeOnTheEnd(t *testing.T) {
	for _, c := range goodReplies {
		v, n, err := Decode([]byte(c.reply + "+more\r\n"))
		if n != len(c.reply) || v.Kind != c.kind || err != nil {
			t.Errorf("%s: n = %d, kind %q, %v", c.name, n, v.Kind, err)
		}
	}
}

func TestDecodeOfPartOfAReplyIsIncomplete(t *testing.T) {
	for _, c := range goodReplies {
		for end := range len(c.reply) {
			if _, n, err := Decode([]byte(c.reply[:end])); n != 0 || !errors.Is(err, ErrIncomplete) {
				t.Errorf("%q of %q: n = %d, %v", c.reply[:end], c.reply, n, err)
			}
		}
	}
}

func TestDecodeRefusesMalformedReplies(t *testing.T) {
	for _, c := range badReplies {
		if _, n, err := Decode([]byte(c.reply + "\r\n")); n != 0 || err == nil {
			t.Errorf("%s: n = %d, no error", c.name, n)
		}
	}
	for _, reply := range []string{"=3\r\ntxt\r\n", "=4\r\ntxtx\r\n", ":9223372036854775808\r\n"} {
		if _, _, err := Decode([]byte(reply)); err == nil || errors.Is(err, ErrIncomplete) {
			t.Errorf("%q: %v", reply, err)
		}
	}
}

func TestDecodeBoundsNesting(t *testing.T) {
	deep := strings.Repeat("*1\r\n", maxDepth-1) + ":1\r\n"
	if _, _, err := Decode([]byte(deep)); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	for _, reply := range []string{"*1\r\n" + deep, strings.Repeat("|1\r\n", 1_000_000)} {
		if _, _, err := Decode([]byte(reply)); !errors.Is(err, errDepth) {
			t.Errorf("%.20q: %v, want %v", reply, err, errDepth)
		}
	}
}
