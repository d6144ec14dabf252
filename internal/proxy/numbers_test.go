package proxy

import "testing"

// The numbers answer who waited, held, and was refused.
func TestNumbersFollowLocksAndCommands(t *testing.T) {
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			b := newBench(t)
			srv := b.proxies[engine]
			before := srv.Stats()
			holder, other := dialClient(t, address(srv)), dialClient(t, address(srv))
			holder.quiet("SET", "x", "1")
			holder.quiet("LOCK", "k")
			other.quiet("LOCK", "k", "WAIT", "10") // times out
			other.quiet("UNLOCK", "k")             // NOTHELD
			other.send("LOCK", "k")
			waitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
			holder.quiet("UNLOCK", "k")
			if _, err := other.frame(); err != nil {
				t.Fatal(err)
			}
			other.quiet("UNLOCK", "k")
			holder.quiet("WATCH", "x")
			s := srv.Stats()
			for what, ok := range map[string]bool{
				"a wait that timed out": s.Queued["timed_out"].Count == 1,
				"a wait with a grant":   s.Queued["granted"].Count == 1,
				"two holds":             s.Holds["released"].Count == 2 && s.Holds["lost"].Count == 0,
				"a hand-over":           s.Handovers["local"].Count == 1,
				"an error":              s.LockErrors["NOTHELD"] == 1,
				"lock commands":         s.Commands["lock"] == 6,
				"a shared command":      s.Commands["shared"] == 1+before.Commands["shared"],
				"its bytes":             s.Bytes["shared"]-before.Bytes["shared"] == int64(len("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\n1\r\n")),
				"a pinned command":      s.Commands["pinned"] == 1,
				"a limit":               s.Limits["max-waiters"] == 100_000,
			} {
				if !ok {
					t.Errorf("the numbers do not show %s", what)
				}
			}
		})
	}
}
