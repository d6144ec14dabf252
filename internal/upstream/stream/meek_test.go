package stream

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Redis closes a connection without credentials for a command in array form that is too large. As a line it is refused.
func TestAMeekStreamSendsLargeCommandsAsLines(t *testing.T) {
	many := []string{"MSET", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5"}
	long, huge := strings.Repeat("v", 20_000), strings.Repeat("v", 70_000)
	small := string(resp.AppendCommand(nil, "GET", "k"))
	for _, c := range []struct{ commands, want string }{
		{small + small, small + small},
		{string(resp.AppendCommand(nil, many...)) + small, `"` + strings.Join(many, `" "`) + "\" \r\n" + small},
		{string(resp.AppendCommand(nil, "SET", "k", long)), `"SET" "k" "` + long + "\" \r\n"},
		{string(resp.AppendCommand(nil, "SET", "k", huge)), string(refusedAnyhow)},
	} {
		s, a, _, _ := streamUnderTest(t)
		s.MakeMeek(true)
		a.keeps = true
		send(t, s, c.commands, a, 1)
		for range 2 { // the second time it is the first request of the next connection
			got := s.Take(nil)
			if string(got) != c.want {
				t.Fatalf("%.40q is sent as %.200q, want %.200q", c.commands, got, c.want)
			}
			s.Unwritten(got)
			s.Reconnect(ErrDown)
			s.Open()
		}
	}
}
