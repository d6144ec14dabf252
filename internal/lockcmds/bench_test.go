package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/losses"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// instant is a session whose Redis answers at once, from memory.
type instant struct {
	fence int64
	lost  *losses.Set
}

func (s *instant) Do(f func()) bool     { f(); return true }
func (s *instant) AfterUnlock(f func()) { f() }
func (s *instant) Reply([]byte)         {}
func (s *instant) Push([]byte)          {}

func (s *instant) Script(c contract.Call) {
	v := resp.Value{Kind: resp.Array, Elems: []resp.Value{{Int: 1}, {Int: s.fence}, {Int: 1}}}
	if c.Script.Name() == "acquire" {
		s.fence++
		v.Elems[1].Int = s.fence
	}
	c.For.Done(v, nil)
}

// BenchmarkLockUnlock is the cost of a pair of commands here, without Redis and without the session.
func BenchmarkLockUnlock(b *testing.B) {
	pool, err := jobs.New(4)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pool.Close(time.Second) }()
	e, err := New(Options{Redis: linkTo(b, redislink.Options{Addr: "127.0.0.1:1"}), UUID: "u", Jobs: pool})
	if err != nil {
		b.Fatal(err)
	}
	s := &instant{lost: losses.NewSet(losses.NewBudget(0))}
	lock, unlock := locktest.Words("LOCK job:17"), locktest.Words("UNLOCK job:17")
	b.ReportAllocs()
	for b.Loop() {
		for _, args := range [][][]byte{lock, unlock} {
			c, err := grammar.Parse(args)
			if err != nil {
				b.Fatal(err)
			}
			e.Start(contract.Caller{Session: s, ID: 1, Token: "1", Losses: s.lost, Proto: 2, NothingPending: true}, c)
		}
	}
}
