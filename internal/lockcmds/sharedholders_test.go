package lockcmds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Of a large crowd only a few are looked at. A holder whose lease was much longer leaves: the lock would outlast all
// that are left by that lease.
func TestTheLeaseOfAHolderLeavesTheCrowdWithIt(t *testing.T) {
	t.Parallel()
	for _, leave := range []string{"UNLOCK k", "FORCEUNLOCK k OWNER long", "hang up"} {
		p := startProxy(t, redistest.Start(t), nil)
		a, b := p.session(2), p.session(2)
		for i := range 20 {
			a.fence(fmt.Sprintf("LOCK k SHARED OWNER x%d", i))
		}
		switch leave {
		case "FORCEUNLOCK k OWNER long":
			b.fence("LOCK k SHARED PX 3600000 OWNER long")
			a.want(leave, ":1")
		case "hang up":
			b.fence("LOCK k SHARED PX 3600000 GRACE 0")
			b.hangUp()
		default:
			b.fence("LOCK k SHARED PX 3600000")
			b.want(leave, ":1")
		}
		redistest.Eventually(t, patience, "the lock to last as long as those that are left", func() bool {
			return p.srv.Client(t).PTTL(t.Context(), "k").Val() <= someLease
		})
		a.want("TRYLOCK k", "(nil)")
	}
}

// The names of a lock and of an owner are joined in the name of a lease. Two holds never have the same.
func TestNoTwoSharedHoldsShareALease(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	for _, pair := range [][2][2]string{
		{{"{t}", "job:1"}, {"{t}:job", "1"}},
		{{"order", "item:7"}, {"{order}:item", "7"}},
		{{"{t}:a", "b:c"}, {"{t}:a:b", "c"}},
		{{"t", "b%3Ac"}, {"t", "b:c"}},
		{{"x", "aaaaaaaa-0000-4000-8000-000000000001:11"}, {"{x}:aaaaaaaa-0000-4000-8000-000000000001", "11"}},
		{{"x", "job"}, {"{x}", "job"}},
	} {
		for _, pair := range [][2][2]string{pair, {pair[1], pair[0]}} {
			stays, other := pair[0], pair[1]
			first := a.fence(fmt.Sprintf("LOCK %s SHARED OWNER %s", stays[0], stays[1]))
			for _, way := range []string{"UNLOCK %s SHARED OWNER %s", "EXTENDLOCK %s PX 1 SHARED OWNER %s", "FORCEUNLOCK %s OWNER %s"} {
				if other[0] == stays[0] && way[0] == 'F' {
					continue // the first one holds the lock
				}
				b.fence(fmt.Sprintf("LOCK %s SHARED OWNER %s", other[0], other[1]))
				if info := b.do("LOCKINFO " + other[0]); !strings.Contains(info, "[owner "+other[1]+" ") {
					t.Errorf("%s: %s", other, info)
				}
				b.want(fmt.Sprintf(way, other[0], other[1]), ":1")
				b.want("TRYLOCK "+stays[0], "(nil)")
				if again := a.fence(fmt.Sprintf("LOCK %s SHARED OWNER %s", stays[0], stays[1])); again != first {
					t.Fatalf("%s of %s: the hold of %s had fence %d, now %d", way, other, stays, first, again)
				}
				a.want(fmt.Sprintf("UNLOCK %s SHARED OWNER %s", stays[0], stays[1]), ":0")
			}
			a.want(fmt.Sprintf("UNLOCK %s SHARED OWNER %s", stays[0], stays[1]), ":1")
			redistest.Eventually(t, patience, "the leases to end", func() bool {
				return p.srv.Client(t).DBSize(t.Context()).Val() == 1 // the counter of fences
			})
		}
	}
}

// Names that locks have in Redis besides their own may be the names of other locks: neither touches the other.
func TestALockMayHaveTheNameOfAnothersKey(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	for _, c := range []struct{ key, line, end string }{
		{"{t}:permits", "TRYLOCK t LIMIT 3", "UNLOCK t"},
		{"{t}:timeout", "TRYLOCK t LIMIT 3", "UNLOCK t"},
	} {
		key, line := c.key, c.line
		for _, kind := range []string{"", " SHARED", " LIMIT 2"} {
			a.fence("LOCK " + key + kind)
			if got := b.do(line); !strings.HasPrefix(got, "-WRONGTYPE ") {
				t.Errorf("%s while %s%s is held: %s", line, key, kind, got)
			}
			if got := b.do("TRYLOCK " + key + " LIMIT 1"); (got == "(nil)") != (kind == " LIMIT 2") {
				t.Errorf("%s%s is held, and a permit: %s", key, kind, got)
			}
			a.want("UNLOCK "+key, ":1")
			b.fence(line)
			if got := a.do("TRYLOCK " + key + kind); !strings.HasPrefix(got, "-WRONGTYPE ") {
				t.Errorf("%s%s while %s: %s", key, kind, line, got)
			}
			b.want(c.end, ":1")
		}
	}
}

// Redisson's clients set the TTL of the lock, and before version 4.4 those of all holders, to their own lease when they
// renew it.
func TestRedissonsReadersCutNoLeaseForLong(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 900 * time.Millisecond })
	a := p.session(2)
	a.fence("LOCK fixed SHARED PX 60000")
	a.fence("LOCK extended SHARED")
	a.want("EXTENDLOCK extended PX 60000", ":1")
	for _, key := range []string{"fixed", "extended"} {
		timeouts := srv.Client(t).Keys(t.Context(), "{"+key+"}:*").Val()
		for _, k := range append(timeouts, key) {
			srv.Do(t, "PEXPIRE", k, "2000")
		}
		for _, k := range append(timeouts, key) {
			redistest.Eventually(t, patience, k+" to have its lease again", func() bool { return srv.Client(t).PTTL(t.Context(), k).Val() > 10*time.Second })
		}
	}
}

// The last holder that is alive leaves a crowd whose other leases have ended, or end soon: the lock is free then,
// without a waiter that asks.
func TestACrowdOfTheDeadDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, b := startProxy(t, srv, nil).session(2), startProxy(t, srv, nil).session(2)
	for _, when := range []string{"ended", "end soon"} {
		b.fence("LOCK k SHARED")
		for i := range 8 {
			a.fence(fmt.Sprintf("LOCK k SHARED PX 200 OWNER x%d", i))
		}
		if when == "ended" {
			redistest.Eventually(t, patience, "the end of their leases", func() bool {
				return len(srv.Client(t).Keys(t.Context(), "*rwlock_timeout*").Val()) == 1
			})
		}
		b.want("UNLOCK k", ":1")
		if left := srv.Client(t).PTTL(t.Context(), "k").Val(); left > 400*time.Millisecond || when == "ended" && left > 0 {
			t.Errorf("%s: the lock lasts %v longer", when, left)
		}
		srv.Do(t, "DEL", "k")
	}
}
