package session

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
)

// client is a session that notes what its client gets.
type client struct {
	reply.Session
	got     string
	refused int
	gone    bool
}

func (c *client) Gone() bool                       { return c.gone }
func (c *client) Put(_ reply.ID, b []byte, _ bool) { c.got += string(b) }
func (c *client) Refuse(_ reply.ID, n int)         { c.refused += n }
func (c *client) Held(int)                         {}
func (c *client) Resume()                          {}

// take hands a frame to the handler, as a session does. It returns the number of commands that are answered.
func take(f *frames, c *client, frame string) int {
	if verb, count := readFrame([]byte(frame)); f.awaits(verb) {
		f.confirm(verb, count)
		c.Put(0, []byte(frame), false)
		return f.done()
	}
	return f.Take(0, []byte(frame), 1, false)
}

const (
	subscribedA    = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	subscribedB    = "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
	unsubscribedB  = "*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"
	unsubscribedA  = "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"
	unsubscribedOf = "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
	messageA       = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"
)

func TestASubscriptionCommandIsAnsweredByAFrameForEachChannel(t *testing.T) {
	var subs subscriptions
	for _, c := range []struct {
		verb   string
		left   int
		frames []string
	}{
		{"subscribe", 2, []string{subscribedA, subscribedB}},
		{"unsubscribe", 0, []string{unsubscribedB, unsubscribedA}}, // of all: as many as there are
		{"unsubscribe", 0, []string{unsubscribedOf}},               // of none: one all the same
		{"subscribe", 1, []string{"-NOPERM no\r\n"}},
	} {
		to := &client{}
		f := framesOf(to, &subs, true, c.verb, c.left) // confirmations are seen in silence, too
		want := ""
		for i, frame := range c.frames {
			if done := take(f, to, frame); (done == 1) != (i == len(c.frames)-1) {
				t.Errorf("%s: %d answered after frame %d", c.verb, done, i)
			}
			if frame[0] != '-' {
				want += frame
			}
		}
		if to.got != want || f.due() != 0 {
			t.Errorf("%s: the client gets %q, want %q; %d are due", c.verb, to.got, want, f.due())
		}
	}
}

// exec is the handler of an EXEC of GET, SUBSCRIBE a b, PING. steps counts the replies that change the session.
func exec(c *client, muted bool, subs *subscriptions) (f *frames, steps *int) {
	steps = new(int)
	reply := &reply.Reply{Session: c, Muted: muted, Done: func([]byte) { *steps++ }}
	return framesOfExec(c, subs, reply, 3, []step{
		{index: 1, verb: "subscribe", left: 2},
		{index: 2, apply: func([]byte) { *steps++ }, rewrite: func([]byte) []byte { return []byte("+pong\r\n") }},
	}), steps
}

func TestAnExecWithASubscriptionEndsBehindItsArray(t *testing.T) {
	for _, muted := range []bool{false, true} {
		c, subs := &client{}, &subscriptions{}
		f, steps := exec(c, muted, subs)
		// The array has as many elements as there were commands. SUBSCRIBE takes two places, so the last reply comes
		// behind it.
		if done := take(f, c, "*3\r\n$1\r\nv\r\n"+subscribedA+subscribedB); done != 0 || f.due() != 1 {
			t.Fatalf("muted %v: %d answered, %d due", muted, done, f.due())
		}
		if done := take(f, c, "+PONG\r\n"); done != 1 || *steps != 2 || subs.Channels != 2 {
			t.Errorf("muted %v: %d answered, %d steps, %d channels", muted, done, *steps, subs.Channels)
		}
		want := "*3\r\n$1\r\nv\r\n" + subscribedA + subscribedB + "+pong\r\n"
		if muted {
			want = subscribedA + subscribedB
		}
		if c.got != want {
			t.Errorf("muted %v: the client gets %q, want %q", muted, c.got, want)
		}
	}
}

// A message that comes between the replies of a transaction is none of them.
func TestAMessageInAnExecAnswersNoCommand(t *testing.T) {
	c, subs := &client{}, &subscriptions{Channels: 1}
	f, _ := exec(c, false, subs)
	if take(f, c, "*3\r\n$1\r\nv\r\n"+messageA+subscribedB); f.due() != 2 || subs.Channels != 2 {
		t.Errorf("%d due, %d channels", f.due(), subs.Channels)
	}
}

func TestAnExecThatExecutesNothingHasNoFrames(t *testing.T) {
	for _, reply := range []string{"-EXECABORT no\r\n", "*-1\r\n"} {
		c := &client{}
		f, _ := exec(c, false, &subscriptions{})
		if done := take(f, c, reply); done != 1 || c.got != reply {
			t.Errorf("%q: %d answered, the client gets %q", reply, done, c.got)
		}
	}
}

func TestFramesThatAreLostAreRefused(t *testing.T) {
	for _, c := range []struct {
		muted, gone, exec bool
		want              int
	}{{want: 1}, {muted: true}, {gone: true}, {exec: true, want: 1}} {
		to := &client{gone: c.gone}
		f := framesOf(to, &subscriptions{}, c.muted, "subscribe", 2)
		if c.exec {
			f, _ = exec(to, false, &subscriptions{})
		}
		if f.Lost(0, 1, false); to.refused != c.want {
			t.Errorf("%+v: %d refused", c, to.refused)
		}
	}
	if (*frames)(nil).due() != 0 {
		t.Error("frames are due of no command")
	}
}
