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
