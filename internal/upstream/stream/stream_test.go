package stream

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// recorder is a Receiver and an Observer that writes down what it is told.
type recorder struct {
	name  string
	log   *[]string
	bytes strings.Builder
	n     int
	keeps bool
	held  int // of a frame that is not whole
}

func (r *recorder) note(format string, args ...any) {
	*r.log = append(*r.log, r.name+" "+fmt.Sprintf(format, args...))
}

func (r *recorder) Replies(_ uint64, b []byte, n int, more bool) {
	r.bytes.Write(b)
	r.n += n
	r.note("%d replies %q more=%v", n, b, more)
}
func (r *recorder) Lost(_ uint64, n int, sent bool) { r.note("lost %d sent=%v", n, sent) }
func (r *recorder) Flush()                          {}
func (r *recorder) Keeps(bool) bool                 { return r.keeps }
func (r *recorder) Holding(n int)                   { r.held = n }
func (r *recorder) Push(b []byte, kind resp.Kind)   { r.note("push %q", b) }
func (r *recorder) Closed(err error)                { r.note("closed %v", err) }
func (r *recorder) Waits() bool                     { return false }

// streamUnderTest is an open stream with recorders a and b.
func streamUnderTest(t *testing.T) (s *Stream, a, b *recorder, log *[]string) {
	t.Helper()
	log = new([]string)
	s = New()
	s.Open()
	return s, &recorder{name: "a", log: log}, &recorder{name: "b", log: log}, log
}

func send(t *testing.T, s *Stream, raw string, to Receiver, n int) {
	t.Helper()
	if err := s.Append([]byte(raw), to, 0, n); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// feed has the replies of Redis arrive, in pieces.
func feed(t tester, s *Stream, pieces ...string) {
	t.Helper()
	for _, b := range pieces {
		if err := s.Feed([]byte(b)); err != nil {
			t.Fatal(err)
		}
	}
}

func wantLog(t *testing.T, got *[]string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// tagged is a Receiver that writes down what comes with each tag.
type tagged struct {
	sink
	log *[]string
}

func (r tagged) Replies(tag uint64, b []byte, n int, _ bool) {
	*r.log = append(*r.log, fmt.Sprintf("%d: %d replies %q", tag, n, b))
}

func (r tagged) Lost(tag uint64, n int, sent bool) {
	*r.log = append(*r.log, fmt.Sprintf("%d: lost %d sent=%v", tag, n, sent))
}

func TestTagsComeBackWithTheirReplies(t *testing.T) {
	s, _, _, log := streamUnderTest(t)
	to := tagged{log: log}
	for i, tag := range []uint64{7, 7, 8, 7} {
		if err := s.Append([]byte{'A' + byte(i)}, to, tag, 1); err != nil {
			t.Fatal(err)
		}
	}
	s.Take(nil)
	feed(t, s, "+1\r\n+2\r\n+3\r\n")
	if err := s.Append([]byte("E"), to, 9, 1); err != nil {
		t.Fatal(err)
	}
	s.Refuse(errors.New("cut"))
	wantLog(t, log,
		`7: 2 replies "+1\r\n+2\r\n"`,
		`8: 1 replies "+3\r\n"`,
		`7: lost 1 sent=true`,
		`9: lost 1 sent=false`)
}

func TestPartialReplyIsHandedOnAtOnce(t *testing.T) {
	s, a, _, log := streamUnderTest(t)
	send(t, s, "A1A2", a, 2)
	s.Take(nil)
	feed(t, s, "+OK\r\n$10\r\n01234", "56789\r", "\n")
	wantLog(t, log,
		`a 1 replies "+OK\r\n$10\r\n01234" more=true`,
		`a 0 replies "56789\r" more=true`,
		`a 1 replies "\n" more=false`)
}

func TestPushBetweenRepliesGoesToTheObserver(t *testing.T) {
	s, a, b, log := streamUnderTest(t)
	s.Observe(b)
	send(t, s, "A1A2", a, 2)
	s.Take(nil)
	feed(t, s, "+1\r\n>2\r\n+inv", "alidate\r\n_\r\n+2\r\n>1\r\n+x\r\n")
	wantLog(t, log,
		`a 1 replies "+1\r\n" more=false`,
		`b push ">2\r\n+invalidate\r\n_\r\n"`,
		`a 1 replies "+2\r\n" more=false`,
		`b push ">1\r\n+x\r\n"`)
}

func TestReplyThatNobodyAskedForIsAnError(t *testing.T) {
	s, _, _, _ := streamUnderTest(t)
	if err := s.Feed([]byte("+OK\r\n")); !errors.Is(err, errUnexpected) {
		t.Errorf("feed = %v, want %v", err, errUnexpected)
	}
}

func TestEndTellsSentFromUnsent(t *testing.T) {
	s, a, b, log := streamUnderTest(t)
	s.Observe(b)
	send(t, s, "A1A2A3", a, 3)
	s.Take(nil)
	feed(t, s, "+1\r\n+par")
	send(t, s, "B1", b, 1)
	s.Take(nil)
	send(t, s, "A4", a, 1)
	broken := errors.New("broken")
	s.Refuse(broken)
	wantLog(t, log,
		`a 1 replies "+1\r\n+par" more=true`,
		"a lost 2 sent=true",
		"b lost 1 sent=true",
		"a lost 1 sent=false",
		"b closed broken")
	if err := s.Append([]byte("A5"), a, 0, 1); !errors.Is(err, ErrDown) {
		t.Errorf("append after the end = %v, want %v", err, ErrDown)
	}
}

// late is a receiver that asks again when it hears of a loss, as another session may do at that moment.
type late struct {
	*recorder
	again func() error
}

func (l late) Lost(tag uint64, n int, sent bool) {
	l.recorder.Lost(tag, n, sent)
	l.note("asks again: %v", l.again())
}

func TestRequestsDuringTheEndAreToldAfterEarlierOnes(t *testing.T) {
	s, a, b, log := streamUnderTest(t)
	send(t, s, "A1", late{b, func() error { return s.Append([]byte("A3"), a, 0, 1) }}, 1)
	s.Take(nil)
	send(t, s, "A2", a, 1)
	s.Refuse(errors.New("x"))
	wantLog(t, log, "b lost 1 sent=true", "b asks again: <nil>", "a lost 1 sent=false", "a lost 1 sent=false")
	if err := s.Append([]byte("A4"), a, 0, 1); !errors.Is(err, ErrDown) {
		t.Errorf("append after the end: %v", err)
	}
}

func TestUnsentRequestsWaitForTheNextConnectionInOrder(t *testing.T) {
	s, a, b, log := streamUnderTest(t)
	send(t, s, "A1", a, 1)
	s.Take(nil)
	feed(t, s, "$5\r\nab")
	b.keeps = true
	send(t, s, "B1", b, 1)
	send(t, s, "A2", a, 1)
	send(t, s, "B2B3", b, 2)
	s.Reconnect(errors.New("x"))
	wantLog(t, log, `a 0 replies "$5\r\nab" more=true`, "a lost 1 sent=true", "a lost 1 sent=false")
	send(t, s, "B4", b, 1)
	s.Open()
	if got := string(s.Take(nil)); got != "B1B2B3B4" {
		t.Fatalf("take = %q, want what was not sent, and not lost", got)
	}
	*log = nil
	feed(t, s, "+1\r\n+2\r\n+3\r\n+4\r\n")
	wantLog(t, log, `b 1 replies "+1\r\n" more=false`, `b 3 replies "+2\r\n+3\r\n+4\r\n" more=false`)
	send(t, s, "B5", b, 1)
	s.Refuse(errors.New("x"))
	if err := s.Append([]byte("B6"), b, 0, 1); !errors.Is(err, ErrDown) {
		t.Errorf("append after the end: %v", err)
	}
}

// A server may close a connection just before a request comes for it. What could not be written has not run.
func TestRequestsThatCouldNotBeWrittenAreUnsent(t *testing.T) {
	s, a, b, log := streamUnderTest(t)
	send(t, s, "A1", a, 1)
	s.Take(nil)
	b.keeps = true
	send(t, s, "B1B2", b, 2)
	send(t, s, "A2", a, 1)
	bytes := s.Take(nil)
	send(t, s, "B3", b, 1)
	s.Unwritten(bytes)
	s.Reconnect(errors.New("x"))
	wantLog(t, log, "a lost 1 sent=true", "a lost 1 sent=false")
	s.Open()
	if got := string(s.Take(nil)); got != "B1B2B3" {
		t.Errorf("take = %q, want what was not written, and not lost", got)
	}
	*log = nil
	s.Refuse(errors.New("y"))
	wantLog(t, log, "b lost 2 sent=true", "b lost 1 sent=true") // of the present connection nothing is known
}

func TestNotesLastAsLongAsTheConnection(t *testing.T) {
	s, _, _, _ := streamUnderTest(t)
	s.Scripts().Add(3)
	s.Scripts().Add(63)
	s.Scripts().Remove(3)
	if s.Scripts().Has(3) || !s.Scripts().Has(63) {
		t.Error("not what was noted")
	}
	s.Reconnect(errors.New("x"))
	if s.Scripts().Has(63) {
		t.Error("kept over the end of the connection")
	}
}

func TestFramedModeHandsOverWholeFrames(t *testing.T) {
	s, _, b, log := streamUnderTest(t)
	s.Observe(b)
	s.SetMode(Framed)
	for _, chunk := range []string{"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r", "\n:1\r\n+PONG\r\n"} {
		feed(t, s, chunk)
		if b.held == 0 {
			t.Error("nothing was said of the part of a frame that is kept")
		}
	}
	wantLog(t, log, `b push "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"`, `b push "+PONG\r\n"`)
}

// What has been written does not count for those who share the connection.
func TestProgressIsOfWhatWasWritten(t *testing.T) {
	s, a, _, _ := streamUnderTest(t)
	want := func(appended, written int64) {
		t.Helper()
		if x, y := s.Progress(); x != appended || y != written {
			t.Errorf("appended %d, written %d, want %d and %d", x, y, appended, written)
		}
	}
	_ = s.Append([]byte("12345"), a, 0, 1)
	b := s.Take(nil)
	want(5, 0) // it is being written
	_ = s.Append([]byte("678"), a, 0, 1)
	b = s.Take(b)
	want(8, 5)
	s.Take(b)
	want(8, 8)
	_ = s.Append([]byte("9"), a, 0, 1)
	s.Refuse(ErrDown)
	want(9, 9)
}

func TestVerdictModeIsFramedAfterARefusalAndRawOtherwise(t *testing.T) {
	const push = ">1\r\n+x\r\n"
	for _, c := range []struct {
		bytes string
		want  string // what the observer gets
		mode  Mode
	}{
		{push + "-NOAUTH no\r\n+frame\r\n" + push, "kind > kind - kind + kind > ", Framed},
		{"+OK\r\n+17 GET", "raw ", Raw},
		{push + "+FULLRESYNC id 0\r\n$3\r\nRDB*1\r\n$4\r\nPING\r\n-x", "kind > raw ", Raw},
		{"\n\n$5\r\n-NO\r\n", "raw ", Raw},
	} {
		for _, size := range []int{len(c.bytes), 1, 3} {
			s, _, _, _ := streamUnderTest(t)
			var o kinds
			s.Observe(&o)
			s.SetMode(Verdict)
			for at := 0; at < len(c.bytes); at += size {
				feed(t, s, c.bytes[at:min(len(c.bytes), at+size)])
			}
			if o.log != c.want || o.bytes != c.bytes || s.mode != c.mode {
				t.Errorf("%q in pieces of %d: %s, mode %d, %q", c.bytes, size, o.log, s.mode, o.bytes)
			}
		}
	}
}

// kinds is an Observer that writes down of what kinds the frames are, and that bytes are raw.
type kinds struct{ log, bytes string }

func (k *kinds) Push(b []byte, kind resp.Kind) {
	k.bytes += string(b)
	if kind != 0 {
		k.log += fmt.Sprintf("kind %c ", kind)
	} else if !strings.HasSuffix(k.log, "raw ") {
		k.log += "raw "
	}
}
func (*kinds) Flush()       {}
func (*kinds) Holding(int)  {}
func (*kinds) Closed(error) {}
func (*kinds) Waits() bool  { return false }

func TestWhenEmptyIsCalledOnce(t *testing.T) {
	s, a, _, _ := streamUnderTest(t)
	calls := 0
	count := func() { calls++ }
	if s.WhenEmpty(0, count) {
		t.Error("whenEmpty promised a call though nothing waits")
	}
	send(t, s, "A1", a, 1)
	if !s.WhenEmpty(0, count) {
		t.Fatal("whenEmpty refused though a request waits")
	}
	s.Take(nil)
	s.Take(nil)
	s.Take(nil)
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}

// However the bytes are cut, every receiver gets exactly the replies to its own requests.
func TestCutsDoNotMatter(t *testing.T) {
	replies := []string{"+OK\r\n", "$-1\r\n", "$3\r\nfoo\r\n", "*2\r\n:1\r\n*1\r\n$0\r\n\r\n", "_\r\n", "%1\r\n+k\r\n#t\r\n", "-ERR x\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		log := new([]string)
		receivers := []*recorder{{name: "a", log: log}, {name: "b", log: log}, {name: "c", log: log}}
		want := make([]string, len(receivers))
		s := New()
		s.Open()
		var wire string
		for range rapid.IntRange(1, 20).Draw(t, "runs") {
			i := rapid.IntRange(0, len(receivers)-1).Draw(t, "receiver")
			n := rapid.IntRange(1, 4).Draw(t, "requests")
			if err := s.Append([]byte("x"), receivers[i], 0, n); err != nil {
				t.Fatal(err)
			}
			for range n {
				r := rapid.SampledFrom(replies).Draw(t, "reply")
				want[i] += r
				wire += r
			}
			if rapid.Bool().Draw(t, "push") {
				wire += ">1\r\n+push\r\n"
			}
		}
		s.Take(nil)
		for len(wire) > 0 {
			n := rapid.IntRange(1, len(wire)).Draw(t, "cut")
			feed(t, s, wire[:n])
			wire = wire[n:]
		}
		for i, r := range receivers {
			if got := r.bytes.String(); got != want[i] {
				t.Fatalf("%s got %q, want %q", r.name, got, want[i])
			}
		}
	})
}

// sink is a Receiver that does nothing.
type sink struct{}

func (sink) Replies(uint64, []byte, int, bool) {}
func (sink) Lost(uint64, int, bool)            {}
func (sink) Flush()                            {}
func (sink) Keeps(bool) bool                   { return false }

func TestStreamDoesNotAllocate(t *testing.T) {
	s := New()
	s.Open()
	to := Receiver(sink{})
	request, reply := []byte("*1\r\n$4\r\nPING\r\n"), []byte("+PONG\r\n")
	var spare []byte
	round := func() {
		if err := s.Append(request, to, 0, 1); err != nil {
			t.Fatal(err)
		}
		spare = s.Take(spare)
		if err := s.Feed(reply); err != nil {
			t.Fatal(err)
		}
	}
	round()
	round()
	if got := testing.AllocsPerRun(1000, round); got != 0 {
		t.Errorf("%v allocations per command, want 0", got)
	}
}

// BenchmarkStream is one command through the state machine of a lane: append, take, feed.
func BenchmarkStream(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			s := New()
			s.Open()
			to := Receiver(sink{})
			request := []byte(strings.Repeat("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", depth))
			reply := []byte(strings.Repeat("$3\r\nfoo\r\n", depth))
			var spare []byte
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Append(request, to, 0, depth); err != nil {
					b.Fatal(err)
				}
				spare = s.Take(spare)
				if err := s.Feed(reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
