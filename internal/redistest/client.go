package redistest

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a plain RESP2 client on the unix socket that sends nothing of its own accord but AUTH and HELLO, and
// never repeats a command. It is closed when t ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := s.newClient()
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Do runs one command on a connection of its own and returns the decoded reply: nil, string, int64 or []any. An error
// reply or a lost connection fails the test.
func (s *Server) Do(t testing.TB, args ...any) any {
	t.Helper()
	v, err := s.ask(args...)
	if err != nil {
		t.Fatalf("redistest: %v: %v", args, err)
	}
	return v
}

// ask is Do for answers that may be errors.
func (s *Server) ask(args ...any) (any, error) {
	c := s.newClient()
	defer c.Close()
	v, err := c.Do(s.t.Context(), args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return v, err
}

func (s *Server) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket, Password: s.password(), Protocol: 2, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Eventually asks until the claim holds and fails the test if it does not within the limit. For states of Redis that
// nothing announces; use an event where there is one.
func Eventually(t testing.TB, limit time.Duration, claim string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v in vain for %s", limit, claim)
		case <-probe.C:
		}
	}
}
