package blackbox

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// The log says who waited and held too long, and behind whom. INFO names the hot locks of the client's own account.
func TestSlowAndHotLocksAreShown(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "other", "on", ">pw", "~*", "&*", "+@all")
	core, logs := observer.New(zap.WarnLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
	a, b, c := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	a.Script("CLIENT SETNAME holder", "+OK")
	b.Script("CLIENT SETNAME waiter", "+OK")
	c.Script("AUTH other pw", "+OK")
	lock := func(waiter *proxytest.Client) {
		a.Script("LOCK k OWNER boss", ":")
		waiter.Script("TRYLOCK k WAIT 50 OWNER clerk", "$-1")
		a.Script("UNLOCK k OWNER boss", ":1")
	}
	lock(b)
	if n := logs.FilterMessage("slow wait").Len() + logs.FilterMessage("slow hold").Len(); n > 0 {
		t.Errorf("%d entries with lock.slow 10s", n)
	}
	srv.Alter(func(o *proxy.Options) { o.Locks.Slow = time.Millisecond })
	lock(b)
	expect := func(message string, want map[string]any) {
		t.Helper()
		var got []map[string]any
		for _, e := range logs.FilterMessage(message).All() {
			fields := e.ContextMap()
			got = append(got, fields)
			matches := e.Level == zap.WarnLevel && fields["ms"].(int64) >= 50
			for name, value := range want {
				matches = matches && fields[name] == value
			}
			if matches {
				return
			}
		}
		t.Errorf("%s: %v, want %v", message, got, want)
	}
	holder, waiter := a.Conn.LocalAddr().String(), b.Conn.LocalAddr().String()
	expect("slow hold", map[string]any{
		"key": "k", "owner": "boss", "client": holder, "client_name": "holder", "outcome": "released",
	})
	expect("slow wait", map[string]any{
		"key": "k", "owner": "clerk", "client": waiter, "client_name": "waiter", "outcome": "timed_out",
		"behind": "boss", "behind_client": holder, "behind_client_name": "holder",
	})
	lock(c)
	expect("slow wait", map[string]any{"client": c.Conn.LocalAddr().String(), "behind": "elsewhere", "behind_client": ""})

	a.Granted("LOCK", "lost", "PX", "100")
	proxytest.WaitFor(t, "the loss", func() bool {
		return logs.FilterMessage("slow hold").FilterField(zap.String("outcome", "expired")).Len() == 1
	})

	hot := func(c *proxytest.Client) string {
		_, rest, _ := strings.Cut(c.Do("INFO", "lockproxy"), "\r\nhot_locks:")
		line, _, _ := strings.Cut(rest, "\r\n")
		return line
	}
	c.Script("LOCK mine OWNER boss", ":", "TRYLOCK mine OWNER clerk WAIT 200", "$-1")
	if line := hot(a); !strings.HasPrefix(line, `"k"=`) || strings.Contains(line, "mine") {
		t.Errorf("the default user sees %s", line)
	}
	if line := hot(c); !strings.HasPrefix(line, `"mine"=`) || !strings.Contains(line, `,"k"=`) {
		t.Errorf("the other user sees %s", line)
	}
	if line := hot(srv.Dial(t)); line == "" {
		t.Error("a client that has waited for no lock sees none")
	}
	a.Script("SELECT 1", "+OK")
	if line := hot(a); line != "" {
		t.Errorf("in another database: %s", line)
	}
	for _, l := range srv.HotLocks(1) {
		if l.User != "other" || l.Key != "mine" || l.Waits != 1 || l.Waited < 200*time.Millisecond {
			t.Errorf("the first for operators is %+v", l)
		}
	}
}
