package blackbox

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Whose credentials a client's commands carry, by client-auth. The proxy's own are a user's who may read only keys p:*.
func TestCredentialsAreLentOnlyAsConfigured(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	admin := proxytest.Dial(t, redis.Addr())
	for _, cmd := range [][]string{
		{"AUTH", "secret"},
		{"ACL", "SETUSER", "proxy", "on", ">hunter2", "~p:*", "~lockproxy:*", "~redisson_*", "&*", "+@all"},
		{"ACL", "SETUSER", "client", "on", ">clientpw", "~c:*", "&*", "+@all"},
	} {
		if got := admin.Do(cmd...); got != "+OK\r\n" {
			t.Fatalf("%s: %q", cmd[0], got)
		}
	}
	type exchange struct{ cmd, want string } // want: how the reply begins
	for _, c := range []struct {
		mode  string
		steps []exchange
	}{
		{proxy.AuthUpstream, []exchange{
			{"GET p:1", "-NOAUTH"},
			{"AUTH client clientpw", "+OK"},
			{"GET c:1", "$-1"},
			{"GET p:1", "-NOPERM"},
			{"RESET", "+RESET"},
			{"GET c:1", "-NOAUTH"},
		}},
		{proxy.AuthProxy, []exchange{
			{"GET p:1", "$-1"},
			{"GET c:1", "-NOPERM"},
			{"LOCK p:lock PX 5000", ":"},
			{"UNLOCK p:lock", ":1"}, // the next engine asks for it too
			{"LOCK c:lock", "-NOPERM"},
			{"AUTH client wrong", "-WRONGPASS"},
			{"GET p:1", "$-1"},
			{"AUTH client clientpw", "+OK"},
			{"GET c:1", "$-1"},
			{"GET p:1", "-NOPERM"},
			{"MULTI", "+OK"},
			{"RESET", "+RESET"},
			{"GET p:1", "$-1"},
			{"GET c:1", "-NOPERM"},
		}},
		{proxy.AuthNone, []exchange{
			{"GET p:1", "$-1"},
			{"AUTH client clientpw", "+OK"},
			{"GET p:1", "$-1"},
			{"GET c:1", "-NOPERM"},
			{"AUTH nobody nothing", "+OK"},
			{"HELLO 3 AUTH client clientpw SETNAME me", "%7"},
			{"GET p:1", "_"},
			{"CLIENT GETNAME", "$2\r\nme"},
			{"AUTH", "-ERR wrong number of arguments"},
			{"RESET", "+RESET"},
			{"GET p:1", "$-1"},
		}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			core, logs := observer.New(zapcore.DebugLevel)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) {
				o.ClientAuth = c.mode
				o.Upstream.User, o.Upstream.Password = "proxy", "hunter2"
				o.Logger = zap.New(core)
			})
			client := srv.Dial(t)
			for _, step := range c.steps {
				got := client.Do(strings.Fields(step.cmd)...)
				if !strings.HasPrefix(got, step.want) {
					t.Errorf("%s: %q, want %q…", step.cmd, got, step.want)
				}
				if strings.Contains(got, "hunter2") || strings.Contains(got, "clientpw") {
					t.Errorf("%s: a password in the reply %q", step.cmd, got)
				}
			}
			for _, e := range logs.All() {
				if line := e.Message + " " + proxytest.FieldText(e.Context); strings.Contains(line, "hunter2") || strings.Contains(line, "clientpw") {
					t.Errorf("a password in the log: %s", line)
				}
			}
		})
	}
}
