package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// --check --connect fails where the proxy could not serve, and prints the warnings of a start.
func TestCheckFindsWhatAStartWouldFind(t *testing.T) {
	redis := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	redis.Do(t, "ACL", "SETUSER", "u", "on", ">p", "resetkeys", "resetchannels", "-@all")
	locked := redistest.Start(t, "--requirepass", "secret")
	fine := redistest.Start(t)
	a := redistest.NewAuthority(t)
	_, secure := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	cert, key := a.Issue(t, "proxy")
	expired, expiredKey := a.IssueFrom(t, "old", time.Now().Add(-2*time.Hour))
	early, earlyKey := a.IssueFrom(t, "early", time.Now().Add(time.Hour))
	listener := []string{"--listen", "tls:127.0.0.1:0", "--tls-auth-clients", "no"}
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string // words of warnings or errors; none: all is well
	}{
		{"all is well", []string{"--upstream", fine.Addr()}, exitOK, nil},
		{"TLS on both sides", []string{"--upstream", secure, "--upstream-tls", "--upstream-ca-file", a.File()}, exitOK, nil},
		{"Redis evicts", []string{"--upstream", redis.Addr()}, exitOK, []string{"warning: redis may evict locks"}},
		{"missing rights", []string{"--upstream", redis.Addr(), "--upstream-user", "u", "--upstream-password", "p"}, exitFailure, []string{
			": PING: NOPERM", "\nlockproxy: COMMAND: NOPERM", "\nlockproxy: ROLE: NOPERM", "\nlockproxy: INFO: NOPERM", "\nlockproxy: CONFIG GET: NOPERM", "\nlockproxy: PERSIST: NOPERM",
		}},
		{"a password is wanted", []string{"--upstream", locked.Addr()}, exitOK, []string{"warning: redis asks for a password (NOAUTH)"}},
		{"a password is wanted and lent", []string{"--upstream", locked.Addr(), "--client-auth", "proxy"}, exitFailure, []string{"PING: NOAUTH"}},
		{"a wrong password", []string{"--upstream", locked.Addr(), "--upstream-password", "wrong"}, exitFailure, []string{"WRONGPASS"}},
		{"an open Redis", []string{"--upstream", fine.Addr(), "--listen", "0.0.0.0:0"}, exitOK, []string{`warning: the network can use redis without a password`, "0.0.0.0:0"}},
		{"a password that is lent to all", []string{"--upstream", locked.Addr(), "--upstream-password", "secret", "--client-auth", "none", "--listen", ":0"}, exitOK, []string{"warning: the network can use redis"}},
		{"a password that clients must know", []string{"--upstream", locked.Addr(), "--upstream-password", "secret", "--listen", ":0"}, exitOK, nil},
		{"clients with certificates", []string{"--upstream", fine.Addr(), "--listen", "tls::0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-file", a.File()}, exitOK, nil},
		{"an expired certificate", append(listener, "--upstream", fine.Addr(), "--tls-cert-file", expired, "--tls-key-file", expiredKey), exitOK, []string{"warning: the certificate has expired"}},
		{"an early certificate", append(listener, "--upstream", fine.Addr(), "--tls-cert-file", early, "--tls-key-file", earlyKey), exitOK, []string{"warning: the certificate is not valid yet"}},
		{"TLS to a plain Redis", []string{"--upstream", fine.Addr(), "--upstream-tls"}, exitFailure, []string{"upstream.tls must be unset"}},
		{"no TLS to a Redis with TLS", []string{"--upstream", secure}, exitFailure, []string{"upstream.tls must be set"}},
		{"no TLS to a Sentinel with TLS", []string{"--upstream", "sentinel://" + secure + "/m"}, exitFailure, []string{"sentinel.tls must be set"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			args := append([]string{"--check", "--connect"}, c.args...)
			if !strings.Contains(strings.Join(c.args, " "), "--listen") {
				args = append(args, "--listen", "127.0.0.1:0")
			}
			if code := run(t.Context(), args, &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q", want)
				}
			}
			if ok := stdout.String() == "configuration ok\n"; ok != (len(c.want) == 0) || ok && stderr.Len() > 0 {
				t.Errorf("it says %q", &stdout)
			}
			if t.Failed() {
				t.Log(&stderr)
			}
		})
	}
}

// Certificates are looked at without --connect, too.
func TestCheckWarnsOfCertificates(t *testing.T) {
	a := redistest.NewAuthority(t)
	cert, key := a.IssueFrom(t, "old", time.Now().Add(-2*time.Hour))
	var stdout, stderr strings.Builder
	code := run(t.Context(), []string{"--check", "--listen", "tls:127.0.0.1:0", "--tls-auth-clients", "no", "--tls-cert-file", cert, "--tls-key-file", key}, &stdout, &stderr)
	if code != exitOK || stdout.String() != "configuration ok, warnings: 1\n" || !strings.Contains(stderr.String(), "warning: the certificate has expired") {
		t.Errorf("exit code %d, %q, %q", code, &stdout, &stderr)
	}
}

func TestExposedAddresses(t *testing.T) {
	for auth, want := range map[string][]string{
		"yes": {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1"},
		"no":  {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1", "tls::2"},
	} {
		cfg := NewConfig()
		cfg.TLS.AuthClients = auth
		cfg.Listen = []string{"127.0.0.1:1", "127.9.0.1:1", "localhost:1", "[::1]:1", "unix:/s", ":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1", "tls::2", "tls:127.0.0.1:2"}
		if diff := cmp.Diff(want, cfg.exposed()); diff != "" {
			t.Error(diff)
		}
	}
}

// The log of the running proxy has the same warnings.
func TestAStartWarnsOfAnOpenRedis(t *testing.T) {
	p := startProcess(t, "--listen", "0.0.0.0:0", "--upstream", redistest.Start(t).Addr())
	p.awaitLog(1, `"level":"warn"`, "the network can use redis without a password", `"listen":["0.0.0.0:0"]`)
	q := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redistest.Start(t, "--requirepass", "x").Addr())
	q.awaitLog(1, `"level":"warn"`, "redis asks for a password")
}

// --check and the start warn of what is allowed and seldom meant.
func TestWhatIsSeldomMeantIsWarnedOf(t *testing.T) {
	marked, blank := writeFile(t, "\uFEFFhunter2"), writeFile(t, "hunter2 \n")
	for _, test := range []struct {
		args []string
		want string // empty: no warning
	}{
		{[]string{"--upstream-password-file", marked}, "byte order mark"},
		{[]string{"--upstream-password-file", blank}, "begins or ends with a blank"},
		{[]string{"--upstream-password-file", writeFile(t, "hunter2\n")}, ""},
		{[]string{"--admin-listen", "10.0.0.1:1", "--admin-pprof"}, "can take profiles"},
		{[]string{"--admin-listen", "0.0.0.0:1"}, ""},
		{[]string{"--admin-listen", "127.0.0.1:1", "--admin-pprof"}, ""},
		{[]string{"--admin-listen", ":1", "--admin-pprof"}, ""},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"--check"}, test.args...), &out, &errs); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", test.args, code, &errs)
		}
		if got := errs.String(); (got != "") != (test.want != "") || !strings.Contains(got, test.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%v: %q", test.args, got)
		}
	}
	p := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redistest.Start(t).Addr(),
		"--admin-listen", "0.0.0.0:0", "--admin-pprof")
	p.awaitLog(1, `"level":"warn"`, "can take profiles")
}
