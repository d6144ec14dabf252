package blackbox

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// The numbers answer who waited, held, and was refused.
func TestNumbersFollowLocksAndCommands(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	before := srv.Stats()
	holder, other := srv.Dial(t), srv.Dial(t)
	holder.Each("SET x 1", "LOCK k")
	other.Quiet("LOCK", "k", "WAIT", "10") // times out
	other.Quiet("UNLOCK", "k")             // NOTHELD
	other.Send("LOCK", "k")
	proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	holder.Quiet("UNLOCK", "k")
	if _, err := other.Frame(); err != nil {
		t.Fatal(err)
	}
	other.Quiet("UNLOCK", "k")
	holder.Quiet("WATCH", "x")
	s := srv.Stats()
	for what, ok := range map[string]bool{
		"a wait that timed out": s.Queued["timed_out"].Count == 1,
		"a wait with a grant":   s.Queued["granted"].Count == 1,
		"two holds":             s.Holds["released"].Count == 2 && s.Holds["lost"].Count == 0,
		"an error":              s.LockErrors["NOTHELD"] == 1,
		"lock commands":         s.Commands["lock"] == 6,
		"a shared command":      s.Commands["shared"] == 1+before.Commands["shared"],
		"its bytes":             s.Bytes["shared"]-before.Bytes["shared"] == int64(len("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\n1\r\n")),
		"a pinned command":      s.Commands["pinned"] == 1,
		"a limit":               s.Limits["max-clients"] == 10_000,
	} {
		if !ok {
			t.Errorf("the numbers do not show %s", what)
		}
	}
	proxytest.WaitFor(t, "a hand-over", func() bool { // not while an attempt of the waiter is on its way
		holder.Quiet("LOCK", "k")
		other.Send("LOCK", "k")
		proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
		holder.Quiet("UNLOCK", "k")
		if _, err := other.Frame(); err != nil {
			t.Fatal(err)
		}
		other.Quiet("UNLOCK", "k")
		s := srv.Stats()
		return s.HandedOver > 0 && s.Handovers["local"].Count == uint64(s.HandedOver)
	})
}

// Each command counts once, with its bytes, however it travels: alone, in a pipeline, inline, or as it comes because it is large.
func TestEveryCommandIsCounted(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	c.Quiet("GET", "k")
	before := srv.Stats()
	one := string(resp.AppendCommand(nil, "GET", "k"))
	sent := one + strings.Repeat(one, 9) + strings.Repeat("GET k\r\n", 3)
	c.Raw(one)
	c.Expect(1)
	c.Raw(sent[len(one):])
	c.Expect(12)
	large := string(resp.AppendCommand(nil, "SET", "k", strings.Repeat("x", 4<<20)))
	c.Raw(large)
	c.Expect(1)
	s := srv.Stats()
	if n := s.Commands["shared"] - before.Commands["shared"]; n != 13 {
		t.Errorf("%d commands on lanes, want 13", n)
	}
	if n := s.Bytes["shared"] - before.Bytes["shared"]; n < int64(len(one)*10) {
		t.Errorf("%d bytes of them, want %d at least", n, len(one)*10)
	}
	if n, size := s.Commands["pinned"]-before.Commands["pinned"], s.Bytes["pinned"]-before.Bytes["pinned"]; n != 1 || size != int64(len(large)) {
		t.Errorf("%d commands on pins of %d bytes, want 1 of %d", n, size, len(large))
	}
}

// The four ends of a hold are told apart, in hold times as well as in losses.
func TestEndsOfHoldsAreToldApart(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	labels := []string{"released", "lost", "expired", "client_gone"}
	held := func() (counts [4]uint64) {
		holds := srv.Stats().Holds
		for i, label := range labels {
			counts[i] = holds[label].Count
		}
		return counts
	}
	for _, label := range labels {
		if _, ok := srv.Stats().Holds[label]; !ok {
			t.Errorf("%s is not shown before the first hold", label)
		}
	}
	hungUp := func(command ...string) func(c *proxytest.Client) {
		return func(c *proxytest.Client) {
			other := srv.Dial(t)
			other.Quiet(command...)
			_ = other.Conn.Close()
		}
	}
	for _, end := range []struct {
		name, label, reason string
		do                  func(c *proxytest.Client)
	}{
		{"UNLOCK", "released", "", func(c *proxytest.Client) { c.Quiet("LOCK", "k"); c.Quiet("UNLOCK", "k") }},
		{"UNLOCK of a fixed lease", "released", "", func(c *proxytest.Client) { c.Quiet("LOCK", "k", "PX", "60000"); c.Quiet("UNLOCK", "k") }},
		{"FORCEUNLOCK", "lost", "forced", func(c *proxytest.Client) { c.Quiet("LOCK", "k"); c.Quiet("FORCEUNLOCK", "k") }},
		{"FORCEUNLOCK of a fixed lease", "lost", "forced", func(c *proxytest.Client) { c.Quiet("LOCK", "k", "PX", "60000"); c.Quiet("FORCEUNLOCK", "k") }},
		{"DEL, and a renewal", "lost", "gone", func(c *proxytest.Client) {
			srv.Alter(func(o *proxy.Options) { o.Locks.Lease = 300 * time.Millisecond })
			c.Each("LOCK k", "DEL k")
		}},
		{"DEL, and UNLOCK", "lost", "gone", func(c *proxytest.Client) {
			c.Each("LOCK k PX 60000", "DEL k", "UNLOCK k")
		}},
		{"MAXHOLD", "lost", "max-hold", func(c *proxytest.Client) { c.Granted("LOCK", "k", "MAXHOLD", "150") }},
		{"PX", "expired", "expired", func(c *proxytest.Client) { c.Granted("LOCK", "k", "PX", "150") }},
		{"the client hangs up", "client_gone", "client_gone", hungUp("LOCK", "h1", "PX", "60000")},
		{"the client hangs up, GRACE 0", "client_gone", "client_gone", hungUp("LOCK", "h2", "GRACE", "0")},
		{"the client hangs up, GRACE", "client_gone", "client_gone", hungUp("LOCK", "h3", "OWNER", "me", "GRACE", "500")},
	} {
		before, lost := held(), srv.Stats().Lost
		end.do(srv.Dial(t))
		proxytest.WaitFor(t, end.name+": an end", func() bool { return held() != before })
		want := before
		want[slices.Index(labels, end.label)]++
		if got := held(); got != want {
			t.Errorf("%s: %v are %v, want %v", end.name, labels, got, want)
		}
		if end.reason != "" {
			lost[end.reason]++
		}
		proxytest.WaitFor(t, end.name+": the reason", func() bool { return maps.Equal(srv.Stats().Lost, lost) })
	}
}
