package session

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
)

// away is sessions in front of a Redis that is away, in virtual time.
type away struct {
	t     *testing.T
	proxy *Proxy
	n     uint64
}

func whileAway(t *testing.T, f func(t *testing.T, a *away)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &away{t: t, proxy: testEnv(t, "unix:"+filepath.Join(t.TempDir(), "none"), Limits{})}
		f(t, a)
		over(a.client())
	})
}

func (a *away) client() *Session {
	a.n++
	return New(clients.Origin{ID: a.n, Addr: "test"}, a.proxy, threads{&hand{}})
}

// closes returns how long it takes until the session's connection is closed, with no output before.
func (a *away) closes(s *Session) time.Duration {
	a.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		b, last := s.NextWrite(nil)
		if b != nil {
			a.t.Fatalf("the client got %q", b)
		}
		if took := time.Since(began); last || took > time.Hour {
			return took
		}
	}
}

// noteOutage has the proxy know that Redis is away.
func (a *away) noteOutage() {
	s := a.client()
	feed(a.t, s, "PING")
	time.Sleep(time.Second)
	s.Hungup()
	if !a.proxy.Upstream.Away() {
		a.t.Fatal("the proxy does not know that Redis is away")
	}
}

func between(t *testing.T, what string, took, least, most time.Duration) {
	t.Helper()
	if took < least || took > most {
		t.Errorf("%s: closed after %v, not between %v and %v", what, took, least, most)
	}
}

// The pauses of many clients are spread, so that they do not come back all at once.
func TestANewClientIsClosedSoonBehindItsFirstCommand(t *testing.T) {
	whileAway(t, func(t *testing.T, a *away) {
		first := a.client()
		feed(t, first, "GET k")
		between(t, "the client that finds the outage", a.closes(first), leastPause, 2*mostPause)
		first.Hungup()
		a.noteOutage()
		least, most := time.Hour, time.Duration(0)
		for range 5 {
			for _, cmd := range []string{
				"GET k", "MULTI", "SUBSCRIBE a", "BLPOP l 0", "MONITOR", "HELLO 3", "HELLO 3 AUTH a b", "AUTH x", "SELECT 1",
				"CLIENT SETNAME x", "CLIENT LIST", "COMMAND", "NOSUCH", "CLIENT REPLY OFF", "WAIT 0 0", "RESET x",
			} {
				s := a.client()
				feed(t, s, cmd, "GET k")
				took := a.closes(s)
				between(t, cmd, took, leastPause, mostPause+20*time.Millisecond)
				least, most = min(least, took), max(most, took)
				s.Hungup()
			}
		}
		if most-least < 300*time.Millisecond {
			t.Errorf("all pauses are between %v and %v", least, most)
		}
	})
}

func TestCommandsWaitForRedisBeforeTheirClientIsClosed(t *testing.T) {
	for _, cmds := range [][]string{{"GET k"}, {"GET k", "GET l"}, {"MULTI", "SET k v", "EXEC"}, {"SUBSCRIBE a"}, {"BLPOP l 0"}, {"SELECT 1"}} {
		whileAway(t, func(t *testing.T, a *away) {
			a.noteOutage()
			s := a.client()
			s.reach, s.doubted = met, false
			feed(t, s, cmds...)
			wait := a.proxy.Upstream.FailoverWait()
			between(t, cmds[0], a.closes(s), wait+leastPause, wait+mostPause+time.Second)
			s.Hungup()
		})
	}
}

// The client may have gone long before Redis is back.
func TestNothingIsLeftOfAClientThatDoesNotWaitForItsClose(t *testing.T) {
	whileAway(t, func(t *testing.T, a *away) {
		a.noteOutage()
		for _, known := range []reach{unmet, met} {
			s := a.client()
			s.reach = known
			feed(t, s, "GET k", "MULTI", "SET k v")
			time.Sleep(time.Second / 4)
			s.Hungup()
			if s.late != nil || s.pin != nil || s.Keeps(false) {
				t.Errorf("%v: something is left", known)
			}
		}
	})
}

func TestQuitNeedsNoRedis(t *testing.T) {
	whileAway(t, func(t *testing.T, a *away) {
		a.noteOutage()
		s := a.client()
		feed(t, s, "QUIT")
		wantOutput(t, s, "+OK\r\n", true)
		s.Hungup()
	})
}
