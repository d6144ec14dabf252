package blackbox

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

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
