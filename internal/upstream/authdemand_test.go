package upstream

import (
	"context"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// The servers of a cluster are asked in turn, and their answers may differ.
func TestTheServersOfAClusterDemandLoginsEachForItself(t *testing.T) {
	servers := []topology.ClusterNode{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	d := &authDemand{servers: map[Node]bool{}}
	if d.Admits() || d.NeedsAuth() {
		t.Error("servers that have not been asked have answered")
	}
	locked := map[Node]bool{}
	for i, step := range []struct {
		change string
		begins int
		needed bool
	}{
		{},
		{change: "b", begins: 1, needed: true},
		{needed: true}, // it stays so
		{change: "c", needed: true},
		{change: "b", needed: true},
		{change: "c"},
		{change: "a", begins: 1, needed: true},
	} {
		if at := Node(step.change); at != "" {
			locked[at] = !locked[at]
		}
		begins := 0
		for range servers {
			if at := d.next(servers); d.learn(at, locked[at]) {
				begins++
			}
		}
		if begins != step.begins || d.NeedsAuth() != step.needed || d.Admits() == step.needed {
			t.Errorf("step %d: %d demands begin, needed: %v, want %+v", i, begins, d.NeedsAuth(), step)
		}
	}
	locked["a"] = false
	for range servers {
		at := d.next(servers)
		d.learn(at, locked[at])
	}
	if d.next([]topology.ClusterNode{{ID: "d"}}); !d.learn("d", true) {
		t.Error("clients who were served by servers that have left stay")
	}
	for _, s := range servers {
		d.learn(Node(s.ID), s.ID == "a")
	}
	if d.next(servers[1:]); d.NeedsAuth() || len(d.servers) != 2 {
		t.Error("a server that has left the cluster demands a login")
	}
}

// A demand is told once. Its end is known as soon as anybody asks.
func TestADemandBeginsAndEnds(t *testing.T) {
	for name, args := range map[string][]string{"HELLO": nil, "no HELLO": {"--rename-command", "HELLO", "hidden"}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, args...)
			admin := server.Client(t) // connected before there is a password
			demanded := make(chan struct{}, 10)
			opts := Options{Addr: server.Addr(), Demanded: func() { demanded <- struct{}{} }}
			finish(&opts)
			u, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer u.close()
			ask := func() (needed bool) {
				t.Helper()
				answer := make(chan error)
				u.AskAuth(func(n bool, err error) {
					needed = n
					answer <- err
				})
				if err := <-answer; err != nil {
					t.Fatal(err)
				}
				return needed
			}
			if ask() || !u.Admits() {
				t.Error("a Redis without a password demands a login")
			}
			for round := range 3 {
				if err := admin.Do(context.Background(), "CONFIG", "SET", "requirepass", "pw").Err(); err != nil {
					t.Fatal(err)
				}
				look(t, u)
				<-demanded
				look(t, u)
				for range 2 {
					if !ask() || u.Admits() || !u.NeedsAuth() {
						t.Errorf("round %d: no demand", round)
					}
				}
				if err := admin.Do(context.Background(), "CONFIG", "SET", "requirepass", "").Err(); err != nil {
					t.Fatal(err)
				}
				if ask() || !u.Admits() {
					t.Errorf("round %d: the demand has not ended", round)
				}
			}
			server.Kill()
			if err := u.LookAtAuth(t.Context()); err == nil || !u.Admits() || len(demanded) > 0 {
				t.Error("without an answer the last one does not stand")
			}
		})
	}
}

func look(t *testing.T, u *Upstream) {
	t.Helper()
	if err := u.LookAtAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
}
