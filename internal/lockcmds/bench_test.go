package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// instant is a session whose Redis answers at once, from memory.
type instant struct {
	fence int64
	lost  *contract.Losses
}

func (s *instant) Do(f func()) bool     { f(); return true }
func (s *instant) AfterUnlock(f func()) { f() }
func (s *instant) Reply([]byte)         {}
func (s *instant) Push([]byte)          {}

func (s *instant) OnBehind(string, func()) {}

func (s *instant) Script(c contract.Call) {
	v := resp.Value{Kind: resp.Array, Elems: []resp.Value{{Int: 1}, {Int: s.fence}, {Int: 1}}}
	if c.Script.Name() == "acquire" {
		s.fence++
		v.Elems[1].Int = s.fence
	}
	c.For.Done(v, nil)
}

// pairOf returns a LOCK and UNLOCK of one session, without Redis and without the work of the session.
func pairOf(tb testing.TB) (pair func()) {
	tb.Helper()
	pool, err := jobs.New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = pool.Close(time.Second) })
	e, err := New(Options{Redis: redislink.New(redislink.Options{Addr: "127.0.0.1:1"}), UUID: "u", Jobs: pool})
	if err != nil {
		tb.Fatal(err)
	}
	s := &instant{lost: &contract.Losses{}}
	commands := [][][]byte{locktest.Words("LOCK job:17"), locktest.Words("UNLOCK job:17")}
	return func() {
		for _, args := range commands {
			c, err := grammar.Parse(args)
			if err != nil {
				tb.Fatal(err)
			}
			e.Start(contract.Caller{Session: s, ID: 1, Token: "1", Losses: s.lost, Proto: 2, NothingPending: true}, c)
		}
	}
}

// BenchmarkLockUnlock is the cost of a pair of commands here, without Redis and without the session.
func BenchmarkLockUnlock(b *testing.B) {
	pair := pairOf(b)
	b.ReportAllocs()
	for b.Loop() {
		pair()
	}
}

// TestAPairAllocatesLittle keeps values on the stack that only rare commands need longer.
func TestAPairAllocatesLittle(t *testing.T) {
	const most = 16
	if got := testing.AllocsPerRun(1000, pairOf(t)); got > most {
		t.Errorf("LOCK and UNLOCK: %v allocations, want at most %d", got, most)
	}
}
