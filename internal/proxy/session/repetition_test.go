package session

import (
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
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
	s.mu.Lock()
	s.doubted = false // Redis has served clients without a login
	t.Cleanup(func() {
		s.unlock()
		over(s)
	})
	return s
}

func way(s *Session) *shards { return s.way.(*shards) }

// onDeadPin gives the session a connection that is down already when the next command is sent.
func onDeadPin(t *testing.T, s *Session) {
	t.Helper()
	if !s.takePin(&request{}, "test", command.Transaction) {
		t.Fatal("there is no pin")
	}
	dialFails(t, s.pin.conn)
}

func TestACommandIsRepeatedUntilItsConnectionIsNotDown(t *testing.T) {
	for _, cmd := range []string{"WATCH k", "BLPOP k 0"} {
		s := overNoCluster(t)
		onDeadPin(t, s)
		s.consume([]byte(typed(cmd)))
		for n := range 3 {
			if s.repeated == nil || s.wait != waitReply || s.pin != nil {
				t.Fatalf("%s: after %d repetitions it waits for %v, and is to be repeated: %v", cmd, n, s.wait, s.repeated != nil)
			}
			s.Resume()
			onDeadPin(t, s)
			if s.repeat() {
				t.Errorf("%s: the session goes on", cmd)
			}
		}
	}
}

// CLIENT REPLY SKIP concerns the command until it is answered.
func TestACommandStaysMutedWhenItIsRepeated(t *testing.T) {
	s := overNoCluster(t)
	onDeadPin(t, s)
	s.replyMode = replySkip
	s.consume([]byte(typed("BLPOP k 0")))
	for range 2 {
		if r := s.repeated; r == nil || !r.Muted || s.replyMode != replyOn {
			t.Fatalf("to be repeated: %v, the next command is muted: %v", r, s.replyMode != replyOn)
		}
		s.Resume()
		onDeadPin(t, s)
		s.repeat()
	}
}

func TestALargeTransactionIsRepeatedUntilItsConnectionIsNotDown(t *testing.T) {
	s := overNoCluster(t)
	way(s).queued = way(s).newTx()
	way(s).queued.slot, way(s).queued.n = hashslot.Of([]byte("k")), mostQueued+1
	for n := range 3 {
		onDeadPin(t, s)
		if n == 0 {
			s.consume([]byte(typed("EXEC")))
		} else if s.repeat() {
			t.Error("the session goes on")
		}
		if s.repeated == nil || way(s).queued == nil || s.wait != waitReply || s.pin != nil {
			t.Fatalf("after %d repetitions it waits for %v, and is to be repeated: %v", n, s.wait, s.repeated != nil)
		}
		s.Resume()
	}
}

// The connection of a WATCH has ended, and the session is not told yet.
func TestNothingRunsBehindAMultiThatIsLostWithItsWatch(t *testing.T) {
	s := overNoCluster(t)
	onDeadPin(t, s)
	s.pin.tx.watching, s.pin.fresh, way(s).multiAs = true, false, &s.ident
	way(s).watch.slot = hashslot.Of([]byte("k"))
	s.consume([]byte(typed("MULTI", "SET k v", "EXEC")))
	if !s.out.Gone() {
		t.Error("the session goes on")
	}
}
