package lockcmds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// rights is a connection that may renew all locks but those of one owner.
type rights struct {
	redislink.Node
	refused string
	with    resp.Value
	batches int
}

func (n *rights) Eval(_ context.Context, _ redislink.Script, keys, args []string) (resp.Value, error) {
	n.batches++
	if slices.Contains(args, n.refused) {
		return n.with, nil
	}
	v := resp.Value{Kind: resp.Array}
	for i := range keys {
		held := int64(1)
		if args[4*i] == "gone" {
			held = 0
		}
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Integer, Int: held})
	}
	return v, nil
}

// renewalFor is a renewal of the hold of that owner.
func renewalFor(owner string) script.Renewal {
	return script.Renewal{Key: "k", Owner: owner}
}

// A refusal of one lock must not cost the others their leases. A state that passes is asked about once.
func TestABatchThatIsRefusedIsRenewedInHalves(t *testing.T) {
	batch := make([]script.Renewal, 8)
	for i := range batch {
		batch[i] = renewalFor("o")
	}
	batch[2], batch[5] = renewalFor("gone"), renewalFor("refused")
	for _, c := range []struct {
		with    string
		halves  bool
		batches int
	}{
		{"NOPERM no", true, 7},
		{"TRYAGAIN the slot is being moved", true, 7},
		{"LOADING soon", false, 1},
	} {
		w := newCallWorld(t)
		by := &rights{refused: "refused", with: locktest.Refusal(c.with)}
		own := scriptRunner{Topology: only{w, by}}
		verdicts := make([]watchdog.Verdict, len(batch))
		err := own.renewSome(t.Context(), watchdog.Group{By: by, Kind: exclusive{}}, batch, verdicts)
		if err == nil || by.batches != c.batches {
			t.Errorf("%s: %v after %d batches, want %d", c.with, err, by.batches, c.batches)
		}
		for i, v := range verdicts {
			want := watchdog.Renewed
			switch {
			case i == 5 || !c.halves:
				want = 0 // tried again
			case i == 2:
				want = watchdog.Gone
			}
			if v != want {
				t.Errorf("%s: verdict %d on lock %d, want %d", c.with, v, i, want)
			}
		}
	}
}

// A batch of which one renewal is refused has not failed: what it says is of that lock.
func TestALeaseThatIsNotRenewedIsLogged(t *testing.T) {
	w := newLockWorld(t)
	kept := w.acquire(t, newClient(1), "", nil)
	refused := w.acquire(t, newClient(2), "someone", func(g *table.Grant) { g.Fence++ })
	by := &rights{refused: refused.Owner, with: locktest.Refusal("NOPERM no")}
	verdicts, err := w.renew(t.Context(), watchdog.Group{By: by, Kind: exclusive{}}, []watchdog.Renewal{{Of: kept}, {Of: refused}})
	if want := []watchdog.Verdict{watchdog.Renewed, 0}; err != nil || !slices.Equal(verdicts, want) {
		t.Errorf("%v, %v; want %v", verdicts, err, want)
	}
	if n := w.logs.FilterMessage("a lease is not renewed").Len(); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// only is a topology of one connection.
type only struct {
	redislink.Topology
	node redislink.Node
}

func (o only) Node(string) redislink.Node { return o.node }

func TestAnAnswerOfAnotherLengthIsNoVerdict(t *testing.T) {
	w := newCallWorld(t)
	w.Own.Answers = []any{locktest.Numbers(1)}
	of := watchdog.Group{By: w.Own, Kind: exclusive{}}
	batch := []script.Renewal{renewalFor("o"), renewalFor("o")}
	if err := w.calls.Client.renewSome(t.Context(), of, batch, make([]watchdog.Verdict, 2)); err == nil {
		t.Error("one answer for two renewals")
	}
	w.Own.Answers = []any{contract.ErrInDoubt}
	if err := w.calls.Client.renewSome(t.Context(), of, batch, make([]watchdog.Verdict, 2)); err == nil {
		t.Error("a lost answer is no error")
	}
}

// A client has removed the TTL of a lock, and its holder has died: a waiter gives it one again. An application's hash and a
// lock of Redisson's keep none.
func TestALockWithoutATTLEndsWithItsHolder(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := startProxy(t, srv, func(o *Options) { o.Lease = 400 * time.Millisecond }).session(2)
	for _, line := range []string{"LOCK k", "FAIRLOCK k", "LOCK k SHARED"} {
		srv.Do(t, "HSET", "k", "o", "1", "fence", "5", "mode", "lock")
		a.fence(line)
		a.want("UNLOCK k", ":1")
	}
	for _, line := range []string{"LOCK s", "FAIRLOCK s", "LOCK s SHARED"} {
		gone := startProxy(t, srv, func(o *Options) { o.Lease = 400 * time.Millisecond }).session(2)
		gone.fence("LOCK s SHARED")
		srv.Do(t, "PERSIST", "s")
		gone.hangUp()
		a.fence(line)
		a.want("UNLOCK s", ":1")
	}
	srv.Do(t, "HSET", "redissons", "o", "1")
	srv.Do(t, "HSET", "data", "mode", "lock", "a", "1")
	for _, key := range []string{"redissons", "data"} {
		a.want("LOCK "+key+" WAIT 600", "(nil)")
		equal(t, key, srv.Client(t).PTTL(t.Context(), key).Val(), -1*time.Nanosecond)
	}
	srv.Do(t, "DEL", "redissons", "data")
	empty(t, srv)
}

// A holder that is alive keeps a lock whose TTL was removed.
func TestAHolderKeepsItsLockWithoutATTL(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	short := func(o *Options) { o.Lease = 900 * time.Millisecond }
	a, b := startProxy(t, srv, short).session(2), startProxy(t, srv, short).session(2)
	a.fence("LOCK k")
	srv.Do(t, "PERSIST", "k")
	b.want("LOCK k WAIT 2000", "(nil)")
	a.want("UNLOCK k", ":1")
	empty(t, srv)
}

// Redis refuses the release, so the session goes on to hold the lock, and may release it later. When its client has gone,
// the lock is not renewed any more.
func TestARefusedReleaseIsRenewedWhileItsClientIsThere(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 3 * time.Second })
	type refused struct {
		*session
		alone, key, owner string
		fence             int64
	}
	var all []refused
	for _, kind := range []string{"", " SHARED", " LIMIT 1"} {
		for _, more := range []string{"", " OWNER o", " GRACE 0", " OWNER o GRACE 0", " OWNER o GRACE 100"} {
			owner, _, _ := strings.Cut(more, " GRACE")
			for range 2 {
				a, key := p.session(2), fmt.Sprint("k", len(all))
				all = append(all, refused{a, strings.ReplaceAll(kind, " SHARED", ""), key, owner, a.fence("LOCK " + key + kind + more)})
			}
		}
	}
	srv.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	for _, a := range all {
		if got := a.do("UNLOCK " + a.key + a.owner); !strings.HasPrefix(got, "-NOREPLICAS ") {
			t.Errorf("%s%s%s: %s", a.key, a.alone, a.owner, got)
		}
	}
	srv.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	before := make([]time.Time, len(all))
	for i, a := range all {
		if i%2 == 0 { // the other of a pair goes on, and goes
			a.want("UNLOCK "+a.key+a.owner, ":1")
		}
		before[i] = p.deadline(a.key)
	}
	for i, a := range all {
		if i%2 == 1 {
			redistest.Eventually(t, patience, "a renewal", func() bool { return p.deadline(a.key).After(before[i]) })
			a.want("EXTENDLOCK "+a.key+" PX 3000 FENCE "+itoa(a.fence)+a.owner, ":1")
		}
		a.hangUp()
	}
	other := p.session(2)
	for _, a := range all {
		other.fence("LOCK " + a.key + a.alone)
		other.want("UNLOCK "+a.key, ":1")
	}
	empty(t, srv)
}
