package clients

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

const noReentry = "-ERR this connection holds the lock already"

// TestReentryByConnection acquires twice on one connection, as two threads do that a pool has given the same connection.
func TestReentryByConnection(t *testing.T) {
	t.Parallel()
	for _, engine := range proxytest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Engine, o.Logger = engine, zap.New(core) })
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
			if got := srv.Stats().Reentries; got["granted"] != 5 || got["refused"] != 0 {
				t.Errorf("counted %v", got)
			}
			pooled.Script("UNLOCK x", "-NOTHELD this connection does not hold", "UNLOCK x OWNER me", "-NOTHELD this OWNER does not hold",
				"UNLOCK c FENCE 1", "-NOTHELD the lock is not held with this fence", "EXTENDLOCK x PX 100", "-NOTHELD this connection",
				"EXTENDLOCK x PX 100 OWNER me", "-NOTHELD this OWNER")
			if info := silent.Quiet("INFO", "lockproxy"); !strings.Contains(info, "\r\nlock_reentries_by_connection:granted=5,refused=0\r\n") {
				t.Error(info)
			}
		})
	}
}

// TestReentryByOwnerOnly refuses the second acquire of a connection, and nothing else.
func TestReentryByOwnerOnly(t *testing.T) {
	t.Parallel()
	for _, engine := range proxytest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) {
				o.Engine, o.Logger, o.Locks.OwnersOnly = engine, zap.New(core), true
			})
			a, b := srv.Dial(t), srv.Dial(t)
			a.Quiet("CLIENT", "SETINFO", "LIB-NAME", "somelib")
			a.Script("LOCK k", ":", "LOCK k", noReentry, "FAIRLOCK k", noReentry, "LOCK k WAIT 100", noReentry, "LOCK k WAIT 0", noReentry,
				"TRYLOCK k", "$-1", "TRYLOCK k WAIT 60000", "$-1", "UNLOCK k", ":1")
			if got := srv.Stats().Reentries; got["granted"] != 0 || got["refused"] != 6 {
				t.Errorf("counted %v", got)
			}
			if n := logs.FilterFieldKey("library").Len(); n != 1 {
				t.Errorf("%d log lines, want one", n)
			}
			// A named owner, another connection, and the same connection once it has released the lock are none of that.
			a.Script("LOCK k OWNER me", ":", "LOCK k OWNER me", ":", "UNLOCK k OWNER me", ":0", "UNLOCK k OWNER me", ":1")
			a.Script("LOCK k", ":")
			b.Script("LOCK k OWNER me WAIT 0", "$-1", "TRYLOCK k", "$-1")
			a.Raw(proxytest.Inline("UNLOCK k", "LOCK k", "UNLOCK k", "LOCK k", "LOCK k", "PING")) // in one write: the second is behind the release
			a.Gets(":1", ":", ":1", ":", noReentry, "+PONG")
			// After a loss the connection may acquire again.
			b.Script("FORCEUNLOCK k", ":1", "LOCK k", ":", "UNLOCK k", ":1")
			a.Script("UNLOCK k", "-LOSTLEASE")
			a.Granted("LOCK", "k", "PX", "300")
			proxytest.WaitFor(t, "the fixed lease to end", func() bool { return srv.Stats().Held == 0 })
			a.Script("LOCK k", ":")
			// An acquire after AUTH or HELLO is of the same connection.
			a.Quiet("HELLO", "3")
			a.Script("LOCK k", noReentry, "TRYLOCK k", "_", "UNLOCK k", ":1")
		})
	}
}
