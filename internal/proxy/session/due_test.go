package session

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// threads is a host whose lane is moved by goroutines.
type threads struct{ *hand }

func (threads) Driver() upstream.Driver { return nil }

// The goroutine that reads a client writes its commands to the lane. Other goroutines leave that to the writer of the
// lane, because they have more to do, and locks of their own.
func TestOnlyTheReaderOfAClientWritesToTheLane(t *testing.T) {
	e := testEnv(t, "unix:"+greeter(t, ""), Limits{}) // without replies the session stays on its lane
	s := New(clients.Origin{ID: 1, Addr: "test"}, e, threads{&hand{}})
	t.Cleanup(func() { over(s) })
	written := func() bool { appended, written := s.lane.Progress(); return appended == written }
	feed(t, s, "GET a")
	redistest.Eventually(t, 10*time.Second, "the connection has the first command", written)
	for n := range 100 {
		if feed(t, s, "GET b"); !written() {
			t.Fatalf("command %d has not been written when its client has been read", n)
		}
		s.Do(func() {
			s.Script(contract.Call{Call: script.Call{Script: &script.Script{}}, For: asker(":1\r\n")})
			if s.due != nil {
				t.Fatalf("script %d: its goroutine is to write", n)
			}
			redistest.Eventually(t, 10*time.Second, "the writer of the lane writes the script", written)
		})
	}
}
