package blackbox

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A fixed lease that runs out has done what the client wanted. Other losses are warnings that say who has lost what.
func TestTheLogTellsOfLostLeases(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Logger = zap.New(core) })
	holder, other := srv.Dial(t), srv.Dial(t)
	holder.Quiet("CLIENT", "SETNAME", "billing")
	other.Quiet("CLIENT", "SETNAME", "operator")

	holder.Granted("LOCK", "short", "PX", "10")
	proxytest.WaitFor(t, "the end of the fixed lease", func() bool { return logs.FilterMessage("fixed lease expired").Len() == 1 })
	if e := logs.FilterMessage("fixed lease expired").All()[0]; e.Level != zap.DebugLevel {
		t.Errorf("a fixed lease that expires is logged as %s", e.Level)
	}
	if n := logs.FilterMessage("lease lost").Len(); n != 0 {
		t.Errorf("%d losses before the first", n)
	}

	holder.Quiet("LOCK", "k", "OWNER", "job-7")
	other.Script("FORCEUNLOCK k", ":1")
	proxytest.WaitFor(t, "the loss", func() bool { return logs.FilterMessage("lease lost").Len() == 1 })
	lost := logs.FilterMessage("lease lost").All()[0]
	fields := lost.ContextMap()
	held, _ := fields["held_seconds"].(float64)
	if lost.Level != zap.WarnLevel || fields["owner"] != "job-7" || fields["client"] != holder.Conn.LocalAddr().String() ||
		fields["client_name"] != "billing" || fields["reason"] != "forced" || fields["key"] != "k" || held <= 0 || held > 60 {
		t.Errorf("%s: %v", lost.Level, fields)
	}
	forced := logs.FilterMessage("lock ended by FORCEUNLOCK").All()
	if len(forced) != 1 || forced[0].Level != logging.Audit {
		t.Fatalf("the audit entries: %v", forced)
	}
	fields = forced[0].ContextMap()
	if fields["owner"] != "job-7" || fields["client"] != other.Conn.LocalAddr().String() || fields["client_name"] != "operator" || fields["user"] != "default" {
		t.Errorf("FORCEUNLOCK: %v", fields)
	}
}

func TestTheLogTellsOfLimits(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.ErrorLevel)
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Logger, o.Locks.MaxWaiters, o.Limits.Clients = zap.New(core), 1, 3
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 1
	})
	a, b, c := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	a.Quiet("LOCK", "k")
	b.Send("LOCK", "k")
	proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
	c.Quiet("LOCK", "k")
	a.Quiet("WATCH", "k")
	c.Quiet("BLPOP", "l", "0")
	d := srv.Dial(t)
	_, _ = d.Frame() // the refusal, or the end
	for limit, client := range map[string]*proxytest.Client{"max-waiters": c, "max-pins": c, "max-clients": d} {
		found := logs.FilterField(zap.String("limit", limit)).FilterField(zap.String("client", client.Conn.LocalAddr().String())).All()
		if len(found) != 1 || found[0].Level != logging.Audit {
			t.Errorf("%s: %v", limit, found)
		}
	}
}

// startBlind runs a proxy whose Redis may not be available.
func startBlind(t *testing.T, change func(*proxy.Options)) *proxytest.Proxy {
	t.Helper()
	opts := proxy.Options{Listen: []string{"127.0.0.1:0"}, DrainTimeout: 1}
	change(&opts)
	srv, _ := proxytest.Launch(t, opts)
	return srv
}

func TestWrongCredentialsOfTheProxyAreAnError(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	core, logs := observer.New(zap.InfoLevel)
	srv := startBlind(t, func(o *proxy.Options) {
		o.Logger, o.ClientAuth = zap.New(core), proxy.AuthProxy
		o.Upstream = upstream.Options{Addr: redis.Addr(), Password: "wrong"}
	})
	for _, cmd := range []string{"GET k", "LOCK k", "WATCH k"} {
		srv.Dial(t).Loses(cmd)
	}
	proxytest.WaitFor(t, "the log", func() bool { return logs.FilterMessage("upstream refused the proxy's credentials").Len() > 0 })
	if e := logs.FilterMessage("upstream refused the proxy's credentials").All()[0]; e.Level != zap.ErrorLevel {
		t.Errorf("it is logged as %s", e.Level)
	}
	if ready, _ := srv.Ready(); ready {
		t.Error("the proxy is ready")
	}
}

func TestAServerThatIsNoRedisIsNamed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(nc).ReadByte()
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			nc.Close()
		}
	}()
	core, logs := observer.New(zap.InfoLevel)
	srv := startBlind(t, func(o *proxy.Options) {
		o.Logger, o.ClientAuth = zap.New(core), proxy.AuthNone
		o.Upstream = upstream.Options{Addr: ln.Addr().String()}
	})
	for _, cmd := range []string{"GET k", "LOCK k"} {
		srv.Dial(t).Loses(cmd)
	}
	proxytest.WaitFor(t, "the log", func() bool { return logs.FilterMessage("upstream is not a Redis server").Len() > 0 })
}

// Each login that Redis refuses is counted. The log names the client and the user, never a password, and is not filled by whoever
// guesses.
func TestFailedLoginsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	redis.Do(t, "ACL", "SETUSER", "alice", "reset", "on", ">pw", "+@all", "~*")
	core, logs := observer.New(zap.WarnLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
	c := srv.Dial(t)
	long := strings.Repeat("u", 1000)
	var users []string
	for _, step := range []struct{ cmd, user string }{
		{"AUTH guess", "default"},
		{"AUTH alice guess", "alice"},
		{"AUTH nobody guess", "nobody"},
		{"HELLO 3 AUTH alice guess", "alice"},
		{"HELLO 2 AUTH alice guess SETNAME x", "alice"},
		{"AUTH " + long + " guess", long[:64]},
		// None of these is a login that failed.
		{"AUTH", ""},
		{"AUTH a b c", ""},
		{"HELLO 9 AUTH alice guess", ""},
		{"HELLO 3", ""},
		{"GET k", ""},
		{"AUTH alice pw", ""},
		{"SELECT 99", ""},
		{"AUTH alice guess", "alice"},
		{"AUTH secret", ""},
	} {
		c.Quiet(strings.Fields(step.cmd)...)
		if step.user != "" {
			users = append(users, step.user)
		}
	}
	if got := srv.Stats().LoginsFailed; got != int64(len(users)) {
		t.Errorf("%d failed logins are counted, %d failed", got, len(users))
	}
	if got := c.Quiet("INFO", "lockproxy"); !strings.Contains(got, "\nlogins_failed:7\r") {
		t.Errorf("INFO lockproxy: %s", got)
	}
	failed := logs.FilterMessage("login failed").All()
	if len(failed) != len(users) {
		t.Fatalf("%d failed logins are logged, %d failed", len(failed), len(users))
	}
	for i, entry := range failed {
		fields := entry.ContextMap()
		if fields["user"] != users[i] || fields["client"] != c.Conn.LocalAddr().String() || fields["total"] != int64(i+1) {
			t.Errorf("failed login %d: %v", i, fields)
		}
		if text := fieldText(entry.Context); strings.Contains(text, "guess") || strings.Contains(text, "secret") || strings.Contains(text, "pw") {
			t.Errorf("a password in the log: %s", text)
		}
	}

	since := time.Now()
	const flood = 500
	for range flood {
		c.Send("AUTH", "alice", "guess")
	}
	for range flood {
		if _, err := c.Frame(); err != nil {
			t.Fatal(err)
		}
	}
	if got := srv.Stats().LoginsFailed; got != int64(len(users)+flood) {
		t.Errorf("%d failed logins are counted, want %d", got, len(users)+flood)
	}
	most := session.EntriesLogged + 2 + int(time.Since(since)/time.Second)
	if got := logs.FilterMessage("login failed").Len() - len(users); got > most {
		t.Errorf("%d of %d failed logins are logged, want at most %d", got, flood, most)
	}
}

// fieldText is what a log line says besides its message.
func fieldText(fields []zapcore.Field) string {
	enc := zapcore.NewMapObjectEncoder()
	var b strings.Builder
	for _, f := range fields {
		f.AddTo(enc)
	}
	for k, v := range enc.Fields {
		b.WriteString(k + "=")
		if s, ok := v.(string); ok {
			b.WriteString(s)
		}
		b.WriteByte(' ')
	}
	return b.String()
}

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
