package upstream

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestEachDemandForCredentialsBeginsAnEra(t *testing.T) {
	server := redistest.Start(t)
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
	server.Kill()
	if u.LookAtAuth(t.Context()); !u.NeedsAuth() {
		t.Error("without an answer the last one does not stand")
	}
}
