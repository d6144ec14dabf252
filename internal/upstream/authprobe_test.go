package upstream

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// several is the topology of servers that each will do. They are found one after the other.
type several struct {
	addrs []string
	next  atomic.Int64
}

func (s *several) Resolve(topology.Node) (topology.Place, error) {
	i := int(s.next.Add(1)-1) % len(s.addrs)
	return topology.Place{Network: "tcp", Address: s.addrs[i], Some: true}, nil
}

func (*several) Doubt(topology.Node, topology.Place, error) {}

// bench has a probe whose goroutine is the test: run asks.
type bench struct {
	*authProbe
	jobs []func()
	told []uint64 // the eras
	shut int      // how often that credentials were found to be needed after they had not been
	stop chan struct{}
}

func newBench(t *testing.T, patience time.Duration, addrs ...string) *bench {
	t.Helper()
	b := &bench{stop: make(chan struct{})}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	spawn := func(f func()) { b.jobs = append(b.jobs, f) }
	dialer := dial.New(dial.Options{
		Resolver: &several{addrs: addrs}, Timeout: 2 * time.Second, KeepAlive: time.Minute, UserTimeout: -1, Wait: -1,
		Spawn: func(f func()) { go f() }, Stop: stop,
	})
	b.authProbe = newAuthProbe(authProbeOptions{
		Asker: &asker{Dialer: dialer, Logger: zap.NewNop()}, Spawn: spawn, Stop: b.stop, Patience: patience,
		Shut: func() { b.shut++ },
	})
	t.Cleanup(b.close)
	return b
}

func (b *bench) knock() { b.Knock(func(era uint64) { b.told = append(b.told, era) }) }

// run runs the goroutine that asks, and demands that there is one at most.
func (b *bench) run(t *testing.T) {
	t.Helper()
	if len(b.jobs) != 1 {
		t.Fatalf("%d goroutines ask", len(b.jobs))
	}
	job := b.jobs[0]
	b.jobs = nil
	job()
}

func (b *bench) expect(t *testing.T, shut bool, times int, eras ...uint64) {
	t.Helper()
	if b.NeedsAuth() != shut || b.shut != times || !slices.Equal(b.told, eras) {
		t.Errorf("shut: %v, found shut %d times, told %d; want %v, %d, %d", b.NeedsAuth(), b.shut, b.told, shut, times, eras)
	}
	b.told = nil
}

// asked is the number of questions that a server has answered.
func asked(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	text, _ := server.Do(t, "INFO", "commandstats").(string)
	if _, after, ok := strings.Cut(text, "cmdstat_reset:calls="); ok {
		if _, err := fmt.Sscanf(after, "%d", &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func TestRedisIsAskedForEachClient(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, 0, server.Addr())
	ask := func() {
		t.Helper()
		b.knock()
		b.run(t)
	}
	ask()
	b.expect(t, false, 0, 0)
	nc := b.nc
	client := server.Client(t)
	set := func(password string) {
		t.Helper()
		if err := client.Do(t.Context(), "CONFIG", "SET", "requirepass", password).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("secret") // it does not end connections that were accepted
	ask()
	b.expect(t, true, 1, 1)
	ask()
	b.expect(t, true, 1, 1)
	set("")
	ask()
	b.expect(t, false, 1, 1)
	set("secret")
	ask()
	b.expect(t, true, 2, 2)
	if nc == nil || b.nc != nc {
		t.Error("one connection does not serve for all questions")
	}
	set("")
}

func TestClientsThatComeDuringAQuestionShareTheNextOne(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, 0, server.Addr())
	b.Knock(func(uint64) {
		for range 3 { // the answer to the first question may be older than these
			b.knock()
		}
	})
	b.run(t)
	b.expect(t, false, 0, 0, 0, 0)
	if n := asked(t, server); n != 2 {
		t.Errorf("%d questions for four clients", n)
	}
	b.knock()
	b.run(t)
	b.expect(t, false, 0, 0)
}

func TestWithoutAnAnswerTheLastOneStands(t *testing.T) {
	server := redistest.Start(t)
	b := newBench(t, 0, server.Addr())
	b.saw(true)
	b.expect(t, true, 1)
	server.Kill()
	b.knock()
	b.run(t)
	b.expect(t, true, 1, 1)
}

func TestAServerWithoutResetIsAskedOnANewConnection(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "RESET", "hidden")
	b := newBench(t, 0, server.Addr())
	b.saw(true)
	for range 2 {
		b.knock()
		b.run(t)
		b.expect(t, false, 1, 1)
	}
	if b.nc != nil {
		t.Error("a connection is kept that does not serve again")
	}
}

// A server that has been stopped keeps its connections and does not answer.
func TestAnotherServerIsAskedWhenOneIsSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	server := redistest.Start(t)
	b := newBench(t, time.Second, silent.Addr().String(), server.Addr())
	b.saw(true)
	b.knock()
	b.run(t)
	b.expect(t, false, 1, 1)
}

func TestNoClientIsToldAfterTheEnd(t *testing.T) {
	b := newBench(t, 0, "127.0.0.1:1")
	close(b.stop)
	b.knock()
	if len(b.jobs) != 0 {
		t.Error("a goroutine asks after the end")
	}
	b.expect(t, false, 0)
}
