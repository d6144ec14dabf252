package session

import (
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// overNoCluster returns a session in front of a cluster that cannot be reached. Its lock is held.
func overNoCluster(t *testing.T) *Session {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e := testEnv(t, "cluster://"+l.Addr().String(), Limits{})
	s := New(clients.Origin{ID: 1, Addr: "test"}, e, &hand{})
	v := clustertest.Split(t, hashslot.Count/2)
	s.way = cluster.New(host{s}, known{e.Upstream, v}, v)
	s.mu.Lock()
	s.doubted = false // Redis has served clients without a login
	t.Cleanup(func() {
		s.unlock()
		over(s)
	})
	return s
}

// known are servers of which the view is known.
type known struct {
	*upstream.Upstream
	view *topology.View
}

func (k known) View() *topology.View { return k.view }

// mayMulti has the session learn that the client has the right to MULTI. Its next commands are queued.
func mayMulti(s *Session) {
	s.consume([]byte(typed("MULTI")))
	s.receive(1, []byte("+OK\r\n*0\r\n"), 2, false)
}

// onDeadPin gives the session a connection that is down already when the next command is sent.
func onDeadPin(t *testing.T, s *Session) {
	t.Helper()
	if _, ok := s.takePin(&request{}, "test", command.Transaction, false); !ok {
		t.Fatal("there is no pin")
	}
	dialFails(t, s.pin.conn)
}

// CLIENT REPLY SKIP concerns the command until it is answered. A connection that may bear a trace is given up, too.
func TestACommandIsRepeatedUntilItsConnectionIsNotDown(t *testing.T) {
	for _, cmd := range []string{"WATCH k", "BLPOP k 0"} {
		s := overNoCluster(t)
		onDeadPin(t, s)
		s.replyMode, s.pin.spent = replySkip, true
		s.consume([]byte(typed(cmd)))
		for n := range 3 {
			if s.repeated == nil || !s.repeated.Muted || s.replyMode != replyOn || s.wait != waitReply || s.pin != nil {
				t.Fatalf("%s: after %d repetitions it waits for %v, and is to be repeated: %v", cmd, n, s.wait, s.repeated)
			}
			s.Resume()
			onDeadPin(t, s)
			if s.repeat() {
				t.Errorf("%s: the session goes on", cmd)
			}
		}
	}
}

func TestALargeTransactionIsRepeatedUntilItsConnectionIsNotDown(t *testing.T) {
	s := overNoCluster(t)
	mayMulti(s)
	for range 257 { // one more than are sent on a lane
		s.consume([]byte(typed("INCR k")))
	}
	held := s.way.Bytes()
	for n := range 3 {
		onDeadPin(t, s)
		if n == 0 {
			s.consume([]byte(typed("EXEC")))
		} else if s.repeat() {
			t.Error("the session goes on")
		}
		if s.repeated == nil || s.way.Bytes() != held || s.wait != waitReply || s.pin != nil {
			t.Fatalf("after %d repetitions it waits for %v, and is to be repeated: %v", n, s.wait, s.repeated != nil)
		}
		s.Resume()
	}
}

// The connection of a WATCH has ended, and the session is not told yet.
func TestNothingRunsBehindAMultiThatIsLostWithItsWatch(t *testing.T) {
	s := overNoCluster(t)
	mayMulti(s)
	s.consume([]byte(typed("DISCARD")))
	onDeadPin(t, s)
	s.consume([]byte(typed("WATCH k")))
	s.repeated = nil // as if it had been answered
	s.Resume()
	onDeadPin(t, s)
	s.pin.tx.watching, s.pin.fresh = true, false
	s.consume([]byte(typed("MULTI", "SET k v")))
	if s.out.Gone() {
		t.Fatal("the session is over")
	}
	s.consume([]byte(typed("EXEC")))
	if !s.out.Gone() {
		t.Error("the session goes on")
	}
}
