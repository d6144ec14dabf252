package session

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
)

// inquiring is the session that asks. Redis answers each question with a number.
type inquiring struct {
	Asker
	asked, answers []string
	after          []func()
}

func (s *inquiring) Ask(next func([]byte), commands ...[]byte) {
	for _, c := range commands {
		s.asked = append(s.asked, string(c))
	}
	next([]byte(":7\r\n"))
}

func (s *inquiring) After(f func()) { s.after = append(s.after, f) }

func (s *inquiring) Answer(reply []byte) { s.answers = append(s.answers, string(reply)) }

// waiter is a client of the proxy that may be waiting.
type waiter struct {
	clients.Visible
	forLock   bool
	conn      uint64
	withError bool
	released  bool
}

func (w *waiter) Unblock(withError bool) (done bool, conn uint64, release func()) {
	w.withError = withError
	return w.forLock, w.conn, func() { w.released = true }
}

func TestUnblock(t *testing.T) {
	ids := clients.NewIDs()
	mine, unknown := ids.Next(), ids.Next()
	for _, c := range []struct {
		name   string
		target waiter
		id     uint64
		judged string // Redis's judgement
		mode   string
		asked  []string
		answer string
	}{
		{"Redis refuses", waiter{forLock: true}, mine, "-NOPERM x\r\n", "", nil, "-NOPERM x\r\n"},
		{"a client of Redis's own", waiter{forLock: true}, 12, ":1\r\n", "", nil, ":1\r\n"},
		{"a client that is not there", waiter{forLock: true}, unknown, ":0\r\n", "", nil, ":0\r\n"},
		{"a client that waits for a lock", waiter{forLock: true}, mine, ":0\r\n", "ERROR", nil, ":1\r\n"},
		{"a client that does not wait", waiter{}, mine, ":0\r\n", "TIMEOUT", nil, ":0\r\n"},
		{
			"a client that may wait at Redis",
			waiter{conn: 34},
			mine, ":0\r\n", "",
			[]string{"*4\r\n$6\r\nCLIENT\r\n$7\r\nUNBLOCK\r\n$2\r\n34\r\n$7\r\nTIMEOUT\r\n"},
			":7\r\n",
		},
		{
			"one that gets an error",
			waiter{conn: 34},
			mine, ":0\r\n", "error",
			[]string{"*4\r\n$6\r\nCLIENT\r\n$7\r\nUNBLOCK\r\n$2\r\n34\r\n$5\r\nERROR\r\n"},
			":7\r\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &inquiring{}
			q := &Inquiry{Asker: s, Proxy: &shared.Proxy{}, Args: [][]byte{strconv.AppendUint(nil, c.id, 10)}}
			if c.mode != "" {
				q.Args = append(q.Args, []byte(c.mode))
			}
			q.Proxy.Clients.Put(mine, &c.target)
			judged, next := q.Start("unblock", []byte("raw"))
			if string(judged) != "raw" {
				t.Errorf("Redis judges %q", judged)
			}
			next([]byte(c.judged))
			if !slices.Equal(s.asked, c.asked) || !slices.Equal(s.answers, []string{c.answer}) {
				t.Errorf("asked %q, answered %q", s.asked, s.answers)
			}
			if strings.EqualFold(c.mode, "error") != c.target.withError {
				t.Errorf("with an error: %v", c.target.withError)
			}
			for _, f := range s.after {
				f()
			}
			if c.target.released != (c.asked != nil) {
				t.Error("the client keeps its connection until the end of the inquiry, and no longer")
			}
		})
	}
}
