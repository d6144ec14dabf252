package stream

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// The word of a probe comes in its turn, however the bytes are cut. Else a reply is missing, came twice, or swallows
// others.
func TestAProbeTellsWhetherRepliesAreInStep(t *testing.T) {
	for _, c := range []struct {
		name, replies string // W: the reply to the probe
		want          error
	}{
		{"in step", "+1\r\n+2\r\nW+3\r\n", nil},
		{"refused", "+1\r\n+2\r\n-NOPERM x\r\n+3\r\n", nil},
		{"a reply is missing", "+1\r\nW+3\r\n", errOutOfStep},
		{"a reply came twice", "+1\r\n+1\r\n+2\r\nW", errOutOfStep},
		{"a reply swallows others", "+1\r\n$70000\r\n+2\r\nW+3\r\n", errOutOfStep},
		{"an aggregate swallows others", "+1\r\n*7\r\n+2\r\nW+3\r\n", errOutOfStep},
		{"still waiting", "+1\r\n", nil},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			s, a, _, _ := streamUnderTest(t)
			send(t, s, "12", a, 2)
			s.Probe()
			s.Probe() // one is on its way
			send(t, s, "3", a, 1)
			sent := string(s.Take(nil))
			if strings.Count(sent, "PING") != 1 {
				t.Fatalf("sent %q", sent)
			}
			word := strings.Split(sent, "\r\n")[4]
			bytes := strings.ReplaceAll(c.replies, "W", "$"+strconv.Itoa(len(word))+"\r\n"+word+"\r\n")
			var err error
			for rest := bytes; rest != "" && err == nil; rest = rest[min(size, len(rest)):] {
				err = s.Feed([]byte(rest[:min(size, len(rest))]))
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s, in pieces of %d: %v", c.name, size, err)
			}
			answered := s.probe.Load() == nil
			s.Reconnect(err)
			if s.probe.Load() != nil || c.want == nil && answered != (c.name != "still waiting") {
				t.Errorf("%s: the probe is answered %v", c.name, answered)
			}
		}
	}
}
