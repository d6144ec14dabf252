package resp

import (
	"slices"
	"strings"
	"testing"
)

func TestFirstArgsHasTheArgumentsThatAreThere(t *testing.T) {
	const whole = "*3\r\n$3\r\nSET\r\n$2\r\nk\n\r\n$10\r\n0123456789\r\n"
	for n := range len(whole) + 1 {
		args := FirstArgs([]byte(whole[:n]), nil, 2)
		want := 0
		switch {
		case n >= 21:
			want = 2
		case n >= 13:
			want = 1
		}
		if len(args) != want || want > 0 && string(args[0]) != "SET" || want > 1 && string(args[1]) != "k\n" {
			t.Errorf("%q: %q", whole[:n], args)
		}
	}
}

func TestElementsAreWholeFrames(t *testing.T) {
	want := []string{"$3\r\n\r\nx\r\n", "*2\r\n:1\r\n*0\r\n", "_\r\n", "|1\r\n+a\r\n:1\r\n:2\r\n"}
	for _, header := range []string{"*4", "~4", "%2"} {
		got, ok := Elements([]byte(header + "\r\n" + strings.Join(want, "")))
		if !ok || !slices.Equal(toStrings(got), want) {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	for _, reply := range []string{"*-1\r\n", "-ERR no\r\n", "_\r\n", "$1\r\na\r\n", "|1\r\n+a\r\n:1\r\n*0\r\n"} {
		if got, ok := Elements([]byte(reply)); ok {
			t.Errorf("%q has elements: %q", reply, got)
		}
	}
}

func TestCountIsThatOfTheHeader(t *testing.T) {
	for raw, want := range map[string]int{"*3\r\n$3\r\nSET\r\n": 3, "*1000001\r\n": 1_000_001, "*0\r\n": 0, "*-1\r\n": 0, "*": 0, "": 0, "GET k\r\n": 0} {
		if got := Count([]byte(raw)); got != want {
			t.Errorf("%q: %d, want %d", raw, got, want)
		}
	}
}

func TestSplitOfAMillionArgumentsTakesTheSpaceOfThese(t *testing.T) {
	words := make([]string, 100_000)
	raw := AppendCommand(nil, words...)
	if n := testing.AllocsPerRun(3, func() {
		if args := Split(raw, nil); len(args) != len(words) || cap(args) > 2*len(words) {
			t.Fatalf("%d arguments, space for %d", len(args), cap(args))
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
