package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// askerOf asks the server at an address as a user.
func askerOf(t *testing.T, addr, user, password string) (*asker, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	return &asker{
		Dialer: dial.New(dial.Options{
			Resolver: topology.NewSingle(topology.Address{Servers: []topology.Server{{Network: "tcp", Addr: addr}}}), Timeout: 3 * time.Second, KeepAlive: time.Minute, Wait: -1,
			Spawn: func(f func()) { go f() }, Stop: stop,
		}),
		Own: dial.Identity{User: user, Password: password, Proto: 2}, Logger: zap.New(core),
	}, logs
}

// withUser starts a Redis with a user "u" who has these rights.
func withUser(t *testing.T, rights ...any) *redistest.Server {
	t.Helper()
	server := redistest.Start(t)
	server.Do(t, append([]any{"ACL", "SETUSER", "u", "on", ">p", "~*", "&*"}, rights...)...)
	return server
}

func TestARedisThatCannotListItsCommandsHasTheBuiltInTable(t *testing.T) {
	a, _ := askerOf(t, redistest.Start(t, "--rename-command", "GETEX", "").Addr(), "", "")
	if table, err := a.Commands(t.Context()); err != nil || table.Lookup("get") == nil || table.Lookup("getex") != nil {
		t.Errorf("Redis's own table: %v", err)
	}
	a, _ = askerOf(t, withUser(t, "+@all", "-command").Addr(), "u", "p")
	if _, err := a.Commands(t.Context()); !dial.IsRefused(err) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the right: %v", err)
	}
	a, _ = askerOf(t, withEmptyTable(t), "", "")
	if table, err := a.Commands(t.Context()); err != nil || table.Len() != commands.BuiltIn().Len() {
		t.Errorf("an empty list: %v", err)
	}
}

func TestProbe(t *testing.T) {
	server := withUser(t, "+@all", "-ping", "-persist")
	probe := func(addr, user string) error {
		t.Helper()
		a, _ := askerOf(t, addr, user, user)
		if user != "" {
			a.Own.Password = "p"
		}
		return a.Probe(t.Context())
	}
	if err := probe(server.Addr(), ""); err != nil {
		t.Errorf("a primary: %v", err)
	}
	if err := probe(server.Addr(), "u"); err != nil {
		t.Errorf("missing rights count as a good answer: %v", err)
	}
	replica := redistest.StartReplica(t, server)
	replica.Do(t, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-persist")
	if err := probe(replica.Addr(), ""); !dial.IsRefused(err) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica: %v", err)
	}
	if err := probe(replica.Addr(), "u"); !errors.Is(err, errReplica) {
		t.Errorf("a replica that refuses the question: %v", err)
	}
	server.Do(t, "CONFIG", "SET", "min-replicas-to-write", "3")
	if err := probe(server.Addr(), ""); !dial.IsRefused(err) || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("too few replicas: %v", err)
	}
}

// A server that has been stopped answers no question.
func TestAProbeEndsWithItsContext(t *testing.T) {
	server := redistest.Start(t)
	a, _ := askerOf(t, server.Addr(), "", "")
	ctx, cancel := context.WithCancel(t.Context())
	server.Pause()
	defer server.Continue()
	cancel()
	begin := time.Now()
	if err := a.Probe(ctx); err == nil || time.Since(begin) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

func TestTryOutNamesRenamedCommands(t *testing.T) {
	for _, name := range vital {
		a, _ := askerOf(t, redistest.Start(t, "--rename-command", name, "renamed").Addr(), "", "")
		if err := a.TryOut(t.Context(), true); err == nil || !strings.Contains(err.Error(), name+": ERR unknown command") {
			t.Errorf("%s is renamed: %v", name, err)
		}
	}
}

func TestTryOutNamesEachMissingRight(t *testing.T) {
	server := withUser(t, "+@all", "-command", "-eval")
	a, _ := askerOf(t, server.Addr(), "u", "p")
	if err := a.TryOut(t.Context(), true); err == nil || !strings.Contains(err.Error(), "COMMAND: NOPERM") || !strings.Contains(err.Error(), "EVAL: NOPERM") {
		t.Errorf("rights for clients are missing: %v", err)
	}
	server.Do(t, "ACL", "SETUSER", "u", "+eval", "-hset", "-zadd", "-subscribe")
	for _, want := range []string{"COMMAND: NOPERM", "HSET: NOPERM", "ZADD: NOPERM", "SUBSCRIBE: NOPERM"} {
		if err := a.TryOut(t.Context(), true); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "HGET") {
			t.Errorf("%s is not among all that are missing: %v", want, err)
		}
	}
	server.Do(t, "ACL", "SETUSER", "u", "+command", "+hset", "+zadd", "+subscribe", "-hrandfield", "resetchannels", "&redisson_lock__channel:*")
	a, logs := askerOf(t, server.Addr(), "u", "p")
	if err := a.TryOut(t.Context(), true); err != nil {
		t.Errorf("rights for shared locks alone are missing: %v", err)
	}
	if hints := logs.All(); len(hints) != 1 || fmt.Sprint(hints[0].ContextMap()["missing"]) != "[PUBLISH redisson_rwlock:{lockproxy:probe} x HRANDFIELD lockproxy:probe 1]" {
		t.Errorf("hints: %v", hints)
	}
	server.Do(t, "ACL", "SETUSER", "u", "-command", "-eval")
	// Clients use their own users, which have rights of their own.
	if err := a.TryOut(t.Context(), false); err == nil || strings.Contains(err.Error(), "EVAL") {
		t.Errorf("rights of the proxy are missing: %v", err)
	}
	a.Own = dial.Identity{Proto: 2}
	if err := a.TryOut(t.Context(), true); err != nil {
		t.Errorf("all rights: %v", err)
	}
	a.Cluster = true
	if err := a.TryOut(t.Context(), true); !errors.Is(err, errNoNode) {
		t.Errorf("no node of a cluster: %v", err)
	}
	a, _ = askerOf(t, redistest.Start(t, "--requirepass", "secret").Addr(), "", "")
	if err := a.TryOut(t.Context(), false); err != nil {
		t.Errorf("clients have credentials, the proxy has none and needs none: %v", err)
	}
	if err := a.TryOut(t.Context(), true); err == nil || !strings.Contains(err.Error(), "PING: NOAUTH") {
		t.Errorf("the proxy lends credentials that it does not have: %v", err)
	}
}

func TestTightLimitsAreLoggedOnce(t *testing.T) {
	server := withUser(t, "+@all", "-config")
	a, logs := askerOf(t, server.Addr(), "", "")
	expect := func(tight bool, warnings int) {
		t.Helper()
		if l := a.Limits(t.Context()); l == nil || l.tight != tight || logs.Len() != warnings {
			t.Errorf("the limits: %v, %d warnings", l, logs.Len())
		}
	}
	expect(false, 0)
	server.Do(t, "CONFIG", "SET", "maxmemory-clients", "5%")
	expect(true, 1)
	expect(true, 1)
	server.Do(t, "CONFIG", "SET", "maxmemory-clients", "6%")
	expect(true, 2)
	a.Own = dial.Identity{User: "u", Password: "p", Proto: 2} // who may not ask
	expect(false, 2)
	server.Kill()
	if l := a.Limits(t.Context()); l != nil {
		t.Errorf("without an answer: %v", l)
	}
}

// Locks have a TTL, so each policy but noeviction may take them; replies that are limited cost the lanes.
func TestSettingsThatHurtAreWarnedOf(t *testing.T) {
	for want, args := range map[int][]string{
		0: nil,
		2: {"--maxmemory-clients", "5%", "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"},
	} {
		core, logs := observer.New(zap.WarnLevel)
		u := start(t, Options{Addr: redistest.Start(t, args...).Addr(), Logger: zap.New(core)})
		redistest.Eventually(t, 10*time.Second, "redis has been looked at", func() bool { ok, _ := u.Ready(); return ok })
		if logs.Len() != want || u.Tight() != (want > 0) {
			t.Errorf("warnings: %v; tight: %v", logs.All(), u.Tight())
		}
	}
}

func TestTightSettings(t *testing.T) {
	for setting, want := range map[string]bool{
		"":                                 false,
		"normal 0 0 0 slave 256 64 60":     false,
		"slave 1 1 1 normal 0 0 0":         false,
		"slave 0 0 0 normal 33554432 0 0":  true,
		"normal 0 16777216 60":             true,
		"normal 1073741824 1073741824 60":  false,
		"normal 1073741823 0 0 pubsub 0 0": true,
		"normal":                           false,
	} {
		if tightOutput(setting) != want {
			t.Errorf("%q: tight is not %v", setting, want)
		}
	}
	for setting, want := range map[string]bool{"": false, "0": false, "0%": false, "1%": true, "1048576": true, "1073741824": false} {
		if tightTotal(setting) != want {
			t.Errorf("%q for all: tight is not %v", setting, want)
		}
	}
}

func TestEveryPolicyButNoevictionMayEvictLocks(t *testing.T) {
	info := "# Memory\r\nused_memory:1\r\nmaxmemory:104857600\r\nmaxmemory_human:100M\r\nmaxmemory_policy:volatile-ttl\r\n"
	if a, b, c := topology.InfoField(info, "maxmemory"), topology.InfoField(info, "maxmemory_policy"), topology.InfoField(info, "memory"); a != "104857600" || b != "volatile-ttl" || c != "" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
	for _, c := range []struct {
		limit, policy string
		want          bool
	}{
		{"1", "volatile-ttl", true}, {"1", "allkeys-lru", true}, {"1", "noeviction", false}, {"0", "allkeys-lru", false}, {"", "", false}, {"1", "", false},
	} {
		if evicts(c.limit, c.policy) != c.want {
			t.Errorf("%q with %q: %v", c.policy, c.limit, !c.want)
		}
	}
}

// The nodes of a cluster may differ, and one is asked at a time.
func TestTheLongestTimeoutOfTheNodesCounts(t *testing.T) {
	server := redistest.Start(t, "--cluster-node-timeout", "7000")
	a, _ := askerOf(t, server.Addr(), "", "")
	for _, ms := range []string{"7000", "5000"} {
		server.Do(t, "CONFIG", "SET", "cluster-node-timeout", ms)
		if l := a.Limits(t.Context()); l == nil || l.downAfter != 7*time.Second {
			t.Errorf("%+v", l)
		}
	}
}

// withEmptyTable is the address of a server that answers COMMAND with an empty list, as some that are no Redis do.
func withEmptyTable(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		for lines := bufio.NewScanner(nc); lines.Scan(); {
			switch lines.Text() {
			case "HELLO":
				_, _ = nc.Write([]byte("-ERR unknown command 'HELLO'\r\n"))
			case "PING":
				_, _ = nc.Write([]byte("+PONG\r\n"))
			case "COMMAND":
				_, _ = nc.Write([]byte("*0\r\n"))
			}
		}
	}()
	return l.Addr().String()
}

// Each Redis command in a script of the lock commands has a row among the questions, and no other command has one.
func TestTryOutKnowsEachCommandOfTheScripts(t *testing.T) {
	files, err := filepath.Glob("../lockcmds/script/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	pieces, err := filepath.Glob("../lockcmds/script/lib/*.lua")
	if err != nil || len(pieces) == 0 {
		t.Fatal(pieces, err)
	}
	used := map[string]bool{"EVALSHA": true, "UNSUBSCRIBE": true} // these two are sent without a script
	for _, file := range append(files, pieces...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllSubmatch(text, -1) {
			used[string(call[1])] = true
		}
	}
	asked := make(map[string]bool)
	for _, need := range append(slices.Clone(lockNeeds), sharedNeeds...) {
		name, _, _ := strings.Cut(need, " ")
		asked[name] = true
	}
	if diff := cmp.Diff(used, asked); diff != "" {
		t.Errorf("used (-) and asked for (+):\n%s", diff)
	}
}
