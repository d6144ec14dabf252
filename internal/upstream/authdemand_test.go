package upstream

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

func TestEachDemandForCredentialsBeginsAnEra(t *testing.T) {
	for name, args := range map[string][]string{"HELLO": nil, "no HELLO": {"--rename-command", "HELLO", "hidden"}} {
		t.Run(name, func(t *testing.T) { testEras(t, redistest.Start(t, args...)) })
	}
}

// The servers of a cluster are asked in turn, and their answers may differ. Only the change of a server begins an era.
func TestTheServersOfAClusterDemandCredentialsEachForItself(t *testing.T) {
	servers := []topology.ClusterNode{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	d := &authDemand{servers: map[Node]serverDemand{}}
	locked := map[Node]bool{}
	round := func() (differ int) {
		for range servers {
			at := d.next(servers)
			for _, n := range servers { // clients come meanwhile
				d.saw(Node(n.ID), locked[Node(n.ID)])
			}
			if d.learn(at, locked[at]) {
				differ++
			}
		}
		return differ
	}
	for i, step := range []struct {
		change string
		differ int
		shut   bool
		era    uint64
	}{
		{differ: 0},
		{change: "b", differ: 1, shut: true, era: 1},
		{shut: true, era: 1}, // it stays so
		{change: "c", differ: 1, shut: true, era: 2},
		{change: "b", differ: 1, shut: true, era: 2},
		{change: "c", differ: 1, era: 2},
		{change: "a", differ: 1, shut: true, era: 3},
	} {
		if at := Node(step.change); at != "" {
			locked[at] = !locked[at]
		}
		if n := round(); n != step.differ || d.NeedsAuth() != step.shut || d.Era() != step.era {
			t.Errorf("step %d: %d changes, needs credentials: %v, era %d, want %+v", i, n, d.NeedsAuth(), d.Era(), step)
		}
	}
	if d.next(servers[1:]); d.NeedsAuth() || len(d.servers) != 2 {
		t.Error("a server that has left the cluster demands credentials")
	}
}

func testEras(t *testing.T, server *redistest.Server) {
	t.Helper()
	admin := server.Client(t) // connected before there is a password
	opts := Options{Addr: server.Addr()}
	finish(&opts)
	u, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for i, step := range []struct {
		password string
		shut     bool
		era      uint64
	}{{"", false, 0}, {"pw", true, 1}, {"pw", true, 1}, {"", false, 1}, {"pw", true, 2}} {
		if err := admin.Do(t.Context(), "CONFIG", "SET", "requirepass", step.password).Err(); err != nil {
			t.Fatal(err)
		}
		u.LookAtAuth(t.Context())
		if u.NeedsAuth() != step.shut || u.Era() != step.era {
			t.Errorf("step %d: needs credentials: %v, era %d, want %v, %d", i, u.NeedsAuth(), u.Era(), step.shut, step.era)
		}
	}
	for _, password := range []string{"", "pw"} { // between two looks
		if err := admin.Do(t.Context(), "CONFIG", "SET", "requirepass", password).Err(); err != nil {
			t.Fatal(err)
		}
		if password == "" {
			nc, err := u.dialer.Dial(t.Context(), dial.Target{At: topology.Any, ID: Identity{Proto: 2}})
			if err != nil {
				t.Fatal(err)
			}
			defer u.dialer.HangUp(nc)
		}
	}
	if u.LookAtAuth(t.Context()); u.Era() != 3 {
		t.Errorf("era %d although a connection was accepted since the last demand", u.Era())
	}
	server.Kill()
	if u.LookAtAuth(t.Context()); !u.NeedsAuth() {
		t.Error("without an answer the last one does not stand")
	}
}
