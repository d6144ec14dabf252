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

// take hands a frame to the handler, as a session does. It returns the number of commands that are answered.
func take(f *frames, c *client, frame string) int {
	if verb, count := readFrame([]byte(frame)); f.verb == verb {
		c.Put(0, []byte(frame), false)
		return f.confirm(count)
	}
	return f.Take(0, []byte(frame), 1, false)
}

const (
	subscribedA    = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	subscribedB    = "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
	unsubscribedB  = "*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"
	unsubscribedA  = "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"
	unsubscribedOf = "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
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
		f := &frames{session: to, subs: &subs, muted: true, verb: c.verb, left: c.left} // confirmations are seen in silence, too
		want := ""
		for i, frame := range c.frames {
			if done := take(f, to, frame); (done == 1) != (i == len(c.frames)-1) {
				t.Errorf("%s: %d answered after frame %d", c.verb, done, i)
			}
			if frame[0] != '-' {
				want += frame
			}
		}
		if to.got != want {
			t.Errorf("%s: the client gets %q, want %q", c.verb, to.got, want)
		}
	}
}

func TestFramesThatAreLostAreRefused(t *testing.T) {
	for _, c := range []struct {
		muted, gone bool
		want        int
	}{{want: 1}, {muted: true}, {gone: true}} {
		to := &client{gone: c.gone}
		f := &frames{session: to, subs: &subscriptions{}, muted: c.muted, verb: "subscribe", left: 2}
		if f.Lost(0, 1, false); to.refused != c.want {
			t.Errorf("%+v: %d refused", c, to.refused)
		}
	}
}
