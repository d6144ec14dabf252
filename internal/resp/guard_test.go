package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// verdict is what a Guard made of a stream of requests.
type verdict struct {
	Commands [][]string // the empty ones left out
	Raw      string     // of all commands
	Err      string
	Used     int // bytes of all commands and empty ones
}

// tester is what testing.TB and rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// guarded feeds the input to the guard in pieces of the given sizes, the last one repeated, and takes every command as
// soon as there is one. It checks the invariants that hold after each call.
func guarded(t tester, g *Guard, input []byte, sizes ...int) (v verdict) {
	t.Helper()
	var buf []byte
	for piece := 0; len(input) > 0; piece++ {
		size := min(sizes[min(piece, len(sizes)-1)], len(input))
		buf, input = append(buf, input[:size]...), input[size:]
		for len(buf) > 0 {
			f, n, err := g.Next(buf)
			if err != nil {
				if n != 0 {
					t.Fatalf("error %v, n = %d", err, n)
				}
				v.Err = err.Error()
				return v
			}
			if n == 0 {
				if g.Need() <= len(buf) {
					t.Fatalf("incomplete, but Need() = %d with %d bytes there", g.Need(), len(buf))
				}
				if g.Checked() > len(buf) {
					t.Fatalf("Checked() = %d of %d bytes", g.Checked(), len(buf))
				}
				break
			}
			v.Used += n
			if len(f.Raw) > 0 {
				v.Raw += string(f.Raw)
				v.Commands = append(v.Commands, splitFrame(t, f))
			}
			buf = buf[n:]
		}
	}
	return v
}

func splitFrame(t tester, f Frame) []string {
	t.Helper()
	args := toStrings(Split(f.Raw, nil))
	if len(args) == 0 || args[0] != string(f.Name) {
		t.Fatalf("frame %q has name %q, redcon sees %q", f.Raw, f.Name, args)
	}
	return args
}

func toStrings(args [][]byte) []string {
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = string(arg)
	}
	return texts
}

const all = 1 << 30 // a piece of everything

var guardCases = []struct {
	name     string
	input    string
	commands [][]string
	err      string
}{
	{name: "one command", input: "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", commands: [][]string{{"GET", "a"}}},
	{name: "pipelined", input: "*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$1\r\nx\r\n", commands: [][]string{{"PING"}, {"PING"}, {"x"}}},
	{name: "empty name", input: "*1\r\n$0\r\n\r\n", commands: [][]string{{""}}},
	{name: "empty commands are ignored", input: "*0\r\n*-1\r\n*-10\r\n\r\n\n \t \r\nPING\n", commands: [][]string{{"PING"}}},
	{name: "bytes of line ends are not looked at", input: "*1\rX$4\r?PINGab", commands: [][]string{{"PING"}}},
	{name: "crlf in data", input: "*1\r\n$4\r\n\r\n\r\n\r\n", commands: [][]string{{"\r\n\r\n"}}},
	{name: "incomplete", input: "*2\r\n$3\r\nGET\r\n$1\r\na\r"},
	{name: "huge count waits", input: "*1048576\r\n"},
	{name: "count over the limit", input: "*1048577\r\n", err: badMultibulk},
	{name: "largest count", input: "*2147483647\r\n", err: badMultibulk},
	{name: "count over int", input: "*2147483648\r\n", err: badMultibulk},
	{name: "count is no number", input: "*a\r\n", err: badMultibulk},
	{name: "count is empty", input: "*\r\n", err: badMultibulk},
	{name: "count with plus", input: "*+1\r\n", err: badMultibulk},
	{name: "count with leading zero", input: "*01\r\n", err: badMultibulk},
	{name: "count is minus zero", input: "*-0\r\n", err: badMultibulk},
	{name: "count overflows", input: "*99999999999999999999\r\n", err: badMultibulk},
	{name: "count ends in newline alone", input: "*1\n$4\r\nPING\r\n", err: badMultibulk},
	{name: "length overflows in redcon", input: "*1\r\n$9223372036854775807\r\n", err: badBulk},
	{name: "length of 512 MiB waits", input: "*1\r\n$536870912\r\n"},
	{name: "length of 512 MiB and one", input: "*1\r\n$536870913\r\n", err: badBulk},
	{name: "length is negative", input: "*1\r\n$-1\r\n", err: badBulk},
	{name: "length is empty", input: "*1\r\n$\r\n", err: badBulk},
	{name: "length with leading zero", input: "*1\r\n$04\r\nPING\r\n", err: badBulk},
	{name: "length with blank", input: "*1\r\n$ 4\r\nPING\r\n", err: badBulk},
	{name: "wrong type", input: "*1\r\n:4\r\n", err: "expected '$', got ':'"},
	{name: "wrong type waits for its line", input: "*1\r\nx"},
	{name: "wrong type is a line break", input: "*1\r\n\r\n", err: "expected '$', got ' '"},
	{name: "wrong type is not ASCII", input: "*1\r\n\xff\r\n", err: "expected '$', got '\xff'"},
	{name: "commands before an error count", input: "PING\r\n*a\r\nPING\r\n", commands: [][]string{{"PING"}}, err: badMultibulk},
	{name: "zero byte in a header waits", input: "*1\x00\r\n"},
	{name: "zero byte in a line waits", input: "PING\x00\r\n"},
	{name: "header too long", input: "*" + strings.Repeat("1", 65536), err: bigMultibulk},
	{name: "header after zero byte too long", input: "*\x00\r\n" + strings.Repeat("1", 65536), err: bigMultibulk},
	{name: "longest header", input: "*" + strings.Repeat("1", 65535) + "\r\n", err: badMultibulk},
	{name: "length header too long", input: "*1\r\n$" + strings.Repeat("1", 65537), err: bigBulk},
	{name: "longest inline", input: strings.Repeat("a", 65536) + "\n", commands: [][]string{{strings.Repeat("a", 65536)}}},
	{name: "inline too long", input: strings.Repeat("a", 81910) + "\n", err: bigInline},
	{name: "inline", input: `SET k "a\x41\n" 'b\'c'` + "\r\n", commands: [][]string{{"SET", "k", "aA\n", "b'c"}}},
	{name: "inline unbalanced", input: "GET \"a\r\n", err: unbalanced},
	{name: "inline quote not followed by a blank", input: "GET \"a\"b\r\n", err: unbalanced},
}

func TestGuardFollowsTheProtocol(t *testing.T) {
	for _, c := range guardCases {
		t.Run(c.name, func(t *testing.T) {
			want := verdict{Commands: c.commands, Err: c.err}
			if c.err != "" {
				want.Err = "Protocol error: " + c.err
			}
			for _, size := range []int{all, 1, 7} {
				got := guarded(t, NewGuard(), []byte(c.input), size)
				got.Raw, got.Used = "", 0
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestRestrictedGuardGrantsTenArgumentsOf16KiB(t *testing.T) {
	tests := []struct{ name, input, err string }{
		{"ten arguments", "*10\r\n", ""},
		{"eleven arguments", "*11\r\n", "Protocol error: unauthenticated multibulk length"},
		{"too many for anybody", "*2147483648\r\n", "Protocol error: invalid multibulk length"},
		{"too many for us", "*2147483647\r\n", "Protocol error: unauthenticated multibulk length"},
		{"16 KiB", "*1\r\n$16384\r\n", ""},
		{"16 KiB and one", "*1\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"},
		{"too long for anybody", "*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			g := NewGuard()
			g.Restrict(true)
			if got := guarded(t, g, []byte(c.input), 1).Err; got != c.err {
				t.Errorf("restricted: got %q, want %q", got, c.err)
			}
		})
	}
	g := NewGuard()
	g.Restrict(true)
	g.Restrict(false)
	if got := guarded(t, g, []byte("*11\r\n$16385\r\n"), all).Err; got != "" {
		t.Errorf("no longer restricted: %s", got)
	}
}

// A line may be longer than 64 KiB if its end comes with the bytes above.
func TestGuardLooksForTheEndOfALineFirst(t *testing.T) {
	for _, c := range []struct{ before, after int }{{65536, 1}, {65536, 16373}, {0, 81909}, {65537, 1}, {0, 81910}} {
		g := NewGuard()
		line := []byte(strings.Repeat("a", c.before+c.after) + "\n")
		_, _, err := g.Next(line[:c.before])
		n := 0
		if err == nil {
			_, n, err = g.Next(line)
		}
		if fits := c.before <= 65536 && len(line) <= 81910; fits != (err == nil) || fits && n != len(line) {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
}

func TestProtocolErrorStays(t *testing.T) {
	g := NewGuard()
	_, _, first := g.Next([]byte("*a\r\n"))
	_, n, err := g.Next([]byte("*1\r\n$4\r\nPING\r\n"))
	if first == nil || n != 0 || !errors.Is(err, first) {
		t.Errorf("after %v: got n = %d, %v", first, n, err)
	}
	if err.Error() != "Protocol error: invalid multibulk length" {
		t.Errorf("%q", err)
	}
}

func TestNeedNamesTheEndOfTheOpenArgument(t *testing.T) {
	g := NewGuard()
	head := "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n"
	if _, n, err := g.Next([]byte(head)); n != 0 || err != nil {
		t.Fatalf("n = %d, %v", n, err)
	}
	if got, want := g.Need(), len(head)+100002; got != want {
		t.Errorf("Need() = %d, want %d", got, want)
	}
}

func TestOpenCommandCanBeStreamed(t *testing.T) {
	body := strings.Repeat("v", 20000) // not a plain header, so that the thorough way is taken after a discard
	whole := fmt.Sprintf("*3\rX$3\r\nSET..$1\r\nk\r\n$%d\rX%s??PING\r\n", len(body), body)
	want := AppendCommand(nil, "SET", "k", body)
	for size := 1; size < 60; size++ {
		g := NewGuard()
		var buf, sent []byte
		named := false
		for rest := []byte(whole); ; {
			buf = append(buf, rest[:min(size, len(rest))]...)
			rest = rest[min(size, len(rest)):]
			f, n, err := g.Next(buf)
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				sent = append(sent, f.Raw...)
				if f.Name != nil {
					t.Errorf("rest of a streamed command: name %q", f.Name)
				}
				break
			}
			name, ok := g.Open()
			if ok && string(name) != "SET" {
				t.Fatalf("open command %q", name)
			}
			if named = named || ok; named {
				n = g.Checked()
				sent = append(sent, buf[:n]...)
				buf = append([]byte(nil), buf[n:]...)
				g.Discard(n)
			}
		}
		if !bytes.Equal(sent, want) {
			t.Fatalf("pieces of %d: streamed %.60q", size, sent)
		}
	}
}

func TestDiscardOfUncheckedBytesPanics(t *testing.T) {
	g := NewGuard()
	buf := []byte("*1\r\n$4\r\nPI")
	if _, n, err := g.Next(buf); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g.Discard(len(buf) + 1)
}

// requests draws a stream from pieces that mean something to the protocol, right or wrong.
func requests(t *rapid.T) []byte {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"*1\r\n", "*2\r\n", "*3\r\n", "*0\r\n", "*-1\r\n", "*11\r\n", "*", "$", "$4\r\n", "$0\r\n", "$4\r\nPING\r\n", "\r", "\n",
			"\r\n", "\x00", "PING", "ECHO ", `"`, `'`, `\`, `\x4a`, `\n`, " ", "\t", "\v", "\f", "-", "0", "01", "+1", "2147483648",
			"536870913", "9223372036854775807", "99999999999999999999", ":1\r\n", "\xff", "ECHO a\r\n", "PING\n",
			"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n", "*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb\x00\r\n", "*1\rx$4\ryPINGzz",
		}),
		rapid.StringN(0, 3, 3),
	)
	return []byte(strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(t, "pieces"), ""))
}

func TestGuardDoesNotDependOnHowBytesAreCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		input := requests(t)
		restricted := rapid.Bool().Draw(t, "restricted")
		run := func(sizes ...int) verdict {
			g := NewGuard()
			g.Restrict(restricted)
			return guarded(t, g, input, sizes...)
		}
		whole := run(all)
		if diff := cmp.Diff(whole, run(1)); diff != "" {
			t.Fatalf("%q byte by byte (-whole +cut):\n%s", input, diff)
		}
		if diff := cmp.Diff(whole, run(rapid.SliceOfN(rapid.IntRange(1, 20), 1, 10).Draw(t, "sizes")...)); diff != "" {
			t.Fatalf("%q in pieces (-whole +cut):\n%s", input, diff)
		}
	})
}

func TestGuardDoesNotAllocate(t *testing.T) {
	g := NewGuard()
	for _, input := range []string{
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", "SET key value\r\n", "*0\r\n",
		"*2\r\n$4\r\nECHO\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n",
	} {
		buf := []byte(input)
		args := make([][]byte, 0, 8)
		allocs := testing.AllocsPerRun(100, func() {
			if _, n, err := g.Next(buf[:len(buf)/2]); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			f, n, err := g.Next(buf)
			if n != len(buf) || err != nil {
				t.Fatal(n, err)
			}
			args = Split(f.Raw, args[:0])
		})
		if allocs != 0 {
			t.Errorf("%.20q: %v allocations", input, allocs)
		}
	}
}

func BenchmarkGuard(b *testing.B) {
	set := AppendCommand(nil, "SET", "key:000000000001", strings.Repeat("x", 64))
	for _, c := range []struct {
		name  string
		input []byte
	}{
		{"GET", AppendCommand(nil, "GET", "key:000000000001")},
		{"SET64", set},
		{"SET64-pipeline16", bytes.Repeat(set, 16)},
		{"SET1M", AppendCommand(nil, "SET", "key:000000000001", strings.Repeat("x", 1<<20))},
		{"MSET20", AppendCommand(nil, strings.Fields("MSET"+strings.Repeat(" key:000000000001 value", 10))...)},
		{"inline", []byte("GET key:000000000001\r\n")},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := NewGuard()
			b.SetBytes(int64(len(c.input)))
			b.ReportAllocs()
			for b.Loop() {
				for at := 0; at < len(c.input); {
					_, n, err := g.Next(c.input[at:])
					if n == 0 || err != nil {
						b.Fatal(n, err)
					}
					at += n
				}
			}
		})
	}
}
