package blackbox

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestReentryByConnection acquires twice on one connection, as two threads do that a pool has given the same connection.
func TestReentryByConnection(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Logger, o.Locks.Reentry = zap.New(core), proxy.ReentryConnection
	})
	silent, pooled := srv.Dial(t), srv.Dial(t)
	silent.Script("LOCK a", ":", "LOCK a", ":", "UNLOCK a", ":0", "UNLOCK a", ":1")
	reports := func() int { return logs.FilterFieldKey("library").Len() }
	if reports() != 0 {
		t.Error("a client that has not announced its library is in the log")
	}
	pooled.Quiet("CLIENT", "SETINFO", "LIB-NAME", "somelib") // an old Redis does not know it
	pooled.Script("LOCK b", ":", "LOCK b", ":", "TRYLOCK b", ":", "FAIRLOCK b", ":", "LOCK c", ":", "LOCK c", ":")
	pooled.Script("LOCK d OWNER me", ":", "LOCK d OWNER me", ":")
	if reports() != 1 {
		t.Errorf("%d log lines, want one", reports())
	}
	if got := srv.Stats().Reentries; got != 5 {
		t.Errorf("counted %v", got)
	}
	pooled.Script("UNLOCK x", "-NOTHELD this connection does not hold", "UNLOCK x OWNER me", "-NOTHELD this OWNER does not hold",
		"UNLOCK c FENCE 1", "-NOTHELD the lock is not held with this fence", "EXTENDLOCK x PX 100", "-NOTHELD this connection",
		"EXTENDLOCK x PX 100 OWNER me", "-NOTHELD this OWNER")
	if info := silent.Quiet("INFO", "lockproxy"); !strings.Contains(info, "\r\nlock_reentries_by_connection:5\r\n") {
		t.Error(info)
	}
}

// fenceOf is the fence of a grant.
func fenceOf(t *testing.T, c *proxytest.Client, args ...string) int {
	t.Helper()
	reply := c.Quiet(args...)
	fence, err := strconv.Atoi(strings.Trim(reply, ":\r\n"))
	if err != nil {
		t.Fatalf("%v: %q", args, reply)
	}
	return fence
}

const nameTheFence = "-ERR this connection has asked for the lock more than once"

// TestEachAcquireOfALibraryIsAnOwner has tasks share the connection of a client library: none gets a lock that another
// one has, and none ends a grant that is not its own.
func TestEachAcquireOfALibraryIsAnOwner(t *testing.T) {
	t.Parallel()
	for _, reentry := range []proxy.Reentry{proxy.ReentryAuto, proxy.ReentryOwner, ""} {
		t.Run(string(reentry), func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.InfoLevel)
			srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
				o.Logger, o.Locks.Reentry = zap.New(core), reentry
			})
			a, b := srv.Dial(t), srv.Dial(t)
			for _, c := range []*proxytest.Client{a, b} {
				if reentry != proxy.ReentryOwner {
					c.Quiet("CLIENT", "SETINFO", "LIB-NAME", "somelib")
				}
			}
			fence := fenceOf(t, a, "LOCK", "k")
			a.Script("LOCK k WAIT 20", "$-1", "FAIRLOCK k WAIT 20", "$-1", "TRYLOCK k", "$-1", "LOCK k SHARED WAIT 20", "$-1",
				"LOCK k LIMIT 2 WAIT 20", "-WRONGTYPE")
			// A task that got null says UNLOCK all the same: the other task keeps its lock.
			a.Script("UNLOCK k", nameTheFence, "EXTENDLOCK k PX 1000", nameTheFence)
			b.Script("TRYLOCK k", "$-1", "UNLOCK k", "-NOTHELD")
			if got := srv.Stats(); got.Held != 1 || got.Reentries != 0 {
				t.Errorf("%d held, %d re-entries", got.Held, got.Reentries)
			}
			a.Script(fmt.Sprintf("EXTENDLOCK k PX 30000 FENCE %d", fence), ":1", fmt.Sprintf("UNLOCK k FENCE %d", fence), ":1",
				fmt.Sprintf("UNLOCK k FENCE %d", fence), "-NOTHELD")
			// The connection that a task has for itself needs no fence.
			a.Script("LOCK k", ":", "EXTENDLOCK k PX 30000", ":1", "UNLOCK k", ":1", "LOCK k SHARED", ":", "UNLOCK k", ":1",
				"LOCK k LIMIT 2", ":", "UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
			// One of two is meant by its fence alone, until the later one is left.
			first := fenceOf(t, a, "LOCK", "k", "LIMIT", "2")
			a.Script("LOCK k LIMIT 2", ":", "UNLOCK k", nameTheFence, fmt.Sprintf("UNLOCK k FENCE %d", first), ":1", "UNLOCK k", ":1")
			// A named owner acquires again on every connection.
			a.Script("LOCK k OWNER me", ":", "LOCK k OWNER me", ":")
			b.Script("LOCK k OWNER me", ":", "UNLOCK k OWNER me", ":0")
			a.Script("UNLOCK k OWNER me", ":0", "UNLOCK k OWNER me", ":1")
			// What was lost is told, and nothing else is released.
			a.Script("LOCK k", ":")
			b.Script("FORCEUNLOCK k", ":1", "LOCK k", ":")
			a.Script("UNLOCK k", "-LOSTLEASE", "UNLOCK k", "-NOTHELD")
			b.Script("UNLOCK k", ":1")
			// A wait is over as soon as the hold of the same connection is released elsewhere.
			fence = fenceOf(t, a, "LOCK", "k")
			a.Raw(proxytest.Inline("LOCK k"))
			proxytest.WaitFor(t, "a waiter", func() bool { return srv.Stats().Waiting == 1 })
			b.Script(fmt.Sprintf("UNLOCK k FENCE %d", fence), ":1")
			a.Gets(":")
			a.Script("UNLOCK k", ":1")
			want := 1
			if reentry == proxy.ReentryOwner {
				want = 0
			}
			if n := logs.FilterField(zap.String("reentry", "owner")).Len(); n != want {
				t.Errorf("%d log lines, want %d", n, want)
			}
		})
	}
}

// TestTheFirstLockCommandDecides has a connection announce its library too late.
func TestTheFirstLockCommandDecides(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	a, b := srv.Dial(t), srv.Dial(t)
	a.Script("LOCK k", ":")
	a.Quiet("CLIENT", "SETINFO", "LIB-NAME", "somelib")
	a.Script("LOCK k", ":", "UNLOCK k", ":0", "UNLOCK k", ":1", "LOCK a", ":")
	b.Quiet("CLIENT", "SETINFO", "LIB-NAME", "somelib")
	b.Script("LOCK b", ":")
	list := a.Quiet("LOCKLIST")
	if i, j := strings.Index(list, "\r\nconnection\r\n"), strings.Index(list, "\r\nowner\r\n$"); i < 0 || j < 0 ||
		!strings.Contains(list[i:], "\r\nreentry\r\n$5\r\nowner\r\n") {
		t.Errorf("LOCKLIST: %q", list)
	}
}

// TestTheFenceIsTheHandleOnAnyConnection releases by the fence what another connection holds.
func TestTheFenceIsTheHandleOnAnyConnection(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	a, b, c := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	for _, kind := range []string{"", " SHARED", " LIMIT 1"} {
		proxytest.WaitFor(t, "a hand-over", func() bool { // a waiter that asks at that moment gets none
			fence := fenceOf(t, a, strings.Fields("LOCK k"+kind)...)
			b.Raw(proxytest.Inline("LOCK k" + strings.Replace(kind, " SHARED", "", 1)))
			proxytest.WaitFor(t, "a waiter", func() bool { return srv.Stats().Waiting == 1 })
			before := srv.Stats().HandedOver
			c.Script(fmt.Sprintf("UNLOCK k FENCE %d", fence), ":1")
			b.Gets(":")
			handed := srv.Stats().HandedOver > before
			a.Script("UNLOCK k", "-NOTHELD")
			b.Script("UNLOCK k", ":1")
			return handed || kind == " SHARED"
		})
	}
	// All holds of a connection that acquires again are one grant.
	fence := fenceOf(t, a, "LOCK", "k")
	a.Script("LOCK k", ":")
	c.Script(fmt.Sprintf("UNLOCK k FENCE %d", fence), ":1", "TRYLOCK k", ":", "UNLOCK k", ":1")
	a.Script("UNLOCK k", "-NOTHELD")
	// A loss is told on any connection.
	fence = fenceOf(t, a, "LOCK", "k")
	b.Script("FORCEUNLOCK k", ":1")
	c.Script(fmt.Sprintf("UNLOCK k FENCE %d", fence), "-LOSTLEASE", fmt.Sprintf("EXTENDLOCK k PX 1000 FENCE %d", fence), "-LOSTLEASE")
	a.Script("UNLOCK k", "-LOSTLEASE")
	fence = fenceOf(t, a, "LOCK", "k")
	b.Script("DEL k", ":1")
	c.Script(fmt.Sprintf("UNLOCK k FENCE %d", fence), "-LOSTLEASE")
	a.Script("UNLOCK k", "-LOSTLEASE")
	if got := srv.Stats().Held; got != 0 {
		t.Errorf("%d held", got)
	}
}
