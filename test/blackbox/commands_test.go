package blackbox

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/embedded"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

func TestCommandIsRedisAnswerWithLockCommands(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	addr := proxyTo(t, srv.Addr())
	// A young Redis still rehashes its table of commands, a step with each look-up, and lists it in another order each
	// time.
	ask(t, srv.Addr(), "COMMAND INFO"+strings.Repeat(" get", 1000))
	for _, c := range []struct {
		question string
		ours     []string
	}{
		{"COMMAND", grammar.Verbs()},
		{"command info", grammar.Verbs()},
		{"COMMAND INFO get nope LOCK set Unlock lock config|get", []string{"lock", "unlock", "lock"}},
		{"COMMAND DOCS", grammar.Verbs()},
		{"COMMAND DOCS trylock get nope fairLOCK set config|get", []string{"trylock", "fairlock"}},
		{"COMMAND DOCS lock", []string{"lock"}},
		{"COMMAND LIST", grammar.Verbs()},
		{"COMMAND LIST FILTERBY ACLCAT write", []string{"lock", "trylock", "fairlock", "unlock", "extendlock", "forceunlock"}},
		{"COMMAND LIST FILTERBY aclcat BLOCKING", []string{"lock", "trylock", "fairlock"}},
		{"COMMAND LIST FILTERBY PATTERN *Lock", []string{"lock", "trylock", "fairlock", "unlock", "extendlock", "forceunlock"}},
		{"COMMAND LIST FILTERBY PATTERN [^a-k]oc?", []string{"lock"}},
	} {
		for _, hello := range []string{"HELLO 2", "HELLO 3"} {
			want := ask(t, srv.Addr(), hello, c.question)
			got := ask(t, addr, hello, c.question)
			rest, ours := withoutLocks(t, got, c.question)
			if diff := cmp.Diff(c.ours, ours); diff != "" {
				t.Errorf("%s, %s: lock commands (-want +got)\n%s", hello, c.question, diff)
			}
			theirs, _ := withoutLocks(t, want, c.question)
			if len(theirs) != len(rest) {
				t.Errorf("%s, %s: %d of Redis's, want %d", hello, c.question, len(rest), len(theirs))
				continue
			}
			for i := range theirs {
				if !reflect.DeepEqual(theirs[i], rest[i]) { // go-cmp takes a minute for all
					t.Errorf("%s, %s: Redis's item %d (-want +got)\n%s", hello, c.question, i, cmp.Diff(theirs[i], rest[i]))
				}
			}
			// A whole listing has ours at its end and is untouched before.
			_, body, _ := strings.Cut(want, "\r\n")
			if len(strings.Fields(c.question)) <= 2 && !strings.HasPrefix(got[strings.IndexByte(got, '\n')+1:], body) {
				t.Errorf("%s, %s: not Redis's bytes", hello, c.question)
			}
		}
	}
}

// withoutLocks takes the lock commands out of a decoded listing, in which Redis has null for each where names were
// asked.
func withoutLocks(t *testing.T, reply, question string) (rest []resp.Value, ours []string) {
	t.Helper()
	v := decode(t, reply)
	for i := 0; i < len(v.Elems); i++ {
		name := string(v.Elems[i].Str)
		if len(v.Elems[i].Elems) > 0 && !strings.Contains(strings.ToUpper(question), "DOCS") {
			name = string(v.Elems[i].Elems[0].Str)
		}
		switch asked := strings.Fields(question); {
		case slices.Contains(grammar.Verbs(), name):
			ours = append(ours, name)
			if strings.EqualFold(asked[min(1, len(asked)-1)], "docs") {
				i++ // the description
			}
		case len(asked) > 2 && strings.EqualFold(asked[1], "info") && grammar.IsVerb([]byte(asked[2+i])):
			// null, from Redis
		default:
			rest = append(rest, v.Elems[i])
		}
	}
	return rest, ours
}

func TestCommandListingsKeepTheOrderOfNames(t *testing.T) {
	t.Parallel()
	addr := proxyTo(t, redistest.Start(t).Addr())
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		v := decode(t, ask(t, addr, hello, "COMMAND INFO unlock get nope LOCK set"))
		var names []string
		for _, e := range v.Elems {
			if e.Null {
				names = append(names, "null")
				continue
			}
			names = append(names, string(e.Elems[0].Str))
		}
		if diff := cmp.Diff([]string{"unlock", "get", "null", "lock", "set"}, names); diff != "" {
			t.Errorf("%s, INFO (-want +got)\n%s", hello, diff)
		}
		v = decode(t, ask(t, addr, hello, "COMMAND DOCS get nope LOCK LOCK set unlock"))
		names = nil
		for i := 0; i < len(v.Elems); i += 2 {
			names = append(names, string(v.Elems[i].Str))
		}
		if diff := cmp.Diff([]string{"get", "lock", "lock", "set", "unlock"}, names); diff != "" {
			t.Errorf("%s, DOCS (-want +got)\n%s", hello, diff)
		}
	}
}

func TestCommandCountsLockCommands(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	addr := proxyTo(t, srv.Addr())
	want := decode(t, ask(t, srv.Addr(), "COMMAND COUNT")).Int + int64(len(grammar.Verbs()))
	if got := decode(t, ask(t, addr, "COMMAND COUNT")).Int; got != want {
		t.Errorf("COMMAND COUNT answered %d, want %d", got, want)
	}
}

// Whatever walks Redis's entries can walk ours: the same kinds in the same places, the same keys.
func TestLockEntriesHaveTheShapeOfRedisEntries(t *testing.T) {
	t.Parallel()
	addr := proxyTo(t, redistest.Start(t).Addr())
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		// Each pair has the same in number: keys and tips.
		for _, pair := range [][2]string{{"getdel", "unlock"}, {"pttl", "lockinfo"}, {"time", "locklist"}} {
			v := decode(t, ask(t, addr, hello, "COMMAND INFO "+pair[0]+" "+pair[1]))
			if len(v.Elems) != 2 {
				t.Fatalf("%s: %d entries, want 2", hello, len(v.Elems))
			}
			if diff := cmp.Diff(shape(v.Elems[0]), shape(v.Elems[1])); diff != "" {
				t.Errorf("%s: %s and %s differ (-%[2]s +%[3]s)\n%[4]s", hello, pair[0], pair[1], diff)
			}
		}
		// SET's description has all that a lock command's has.
		v := decode(t, ask(t, addr, hello, "COMMAND DOCS set lock"))
		set, lock := shapes(v.Elems[1]), shapes(v.Elems[3])
		for path, kinds := range lock {
			if diff := cmp.Diff(set[path], kinds); diff != "" {
				t.Errorf("%s: %s of SET and LOCK differ (-set +lock)\n%s", hello, path, diff)
			}
		}
	}
}

// shape is the tree of a value's kinds, with the first element standing for all those of a set.
func shape(v resp.Value) string {
	var b strings.Builder
	b.WriteByte(byte(v.Kind))
	if len(v.Elems) == 0 {
		return b.String()
	}
	elems := v.Elems
	words := !slices.ContainsFunc(elems, func(e resp.Value) bool { return e.Kind != resp.SimpleString })
	if words {
		elems = elems[:1]
	}
	b.WriteByte('(')
	for _, e := range elems {
		b.WriteString(shape(e))
	}
	b.WriteByte(')')
	return b.String()
}

// shapes lists the kinds under each path of keys in a description, whatever the arguments are called.
func shapes(v resp.Value) map[string][]string {
	found := map[string][]string{}
	var walk func(path string, v resp.Value)
	walk = func(path string, v resp.Value) {
		kind := string(rune(v.Kind))
		if !slices.Contains(found[path], kind) {
			found[path] = append(found[path], kind)
		}
		isMap := v.Kind == resp.Map || v.Kind == resp.Array && len(v.Elems) > 1 && v.Elems[0].Kind == resp.Bulk
		if !isMap {
			for _, e := range v.Elems {
				walk(path+"[]", e)
			}
			return
		}
		for i := 0; i < len(v.Elems); i += 2 {
			walk(path+"."+string(v.Elems[i].Str), v.Elems[i+1])
		}
	}
	walk("", v)
	return found
}

// What COMMAND says of a lock command is what the command takes.
func TestLockEntriesAgreeWithTheGrammar(t *testing.T) {
	t.Parallel()
	addr := proxyTo(t, redistest.Start(t).Addr())
	tokens := []string{"WAIT", "PX", "EX", "OWNER", "GRACE", "MAXHOLD", "FENCE", "MATCH", "COUNT"}
	for _, verb := range grammar.Verbs() {
		info := decode(t, ask(t, addr, "COMMAND INFO "+verb)).Elems[0].Elems
		docs := ask(t, addr, "COMMAND DOCS "+verb)
		arity, keyed := int(info[1].Int), info[3].Int == 1

		base := []string{verb}
		if keyed {
			base = append(base, "k")
		}
		if verb == "extendlock" {
			base = append(base, "PX", "7")
		}
		if len(base) != max(arity, -arity) {
			t.Errorf("%s: arity %d, but %q is enough", verb, arity, base)
		}
		if err := parse(base); err != nil {
			t.Errorf("%q: %v", base, err)
		}
		if len(base) > 1 {
			if err := parse(base[:len(base)-1]); err == nil || !strings.Contains(err.Error(), "wrong number") {
				t.Errorf("%q: %v, want a wrong number of arguments", base[:len(base)-1], err)
			}
		}
		if err := parse(append(base, "PX", "7")); arity > 0 && (err == nil || !strings.Contains(err.Error(), "wrong number")) {
			t.Errorf("%s with more arguments: %v, want a wrong number of arguments", verb, err)
		}
		for _, token := range tokens {
			documented := strings.Contains(docs, "$5\r\ntoken\r\n"+string(resp.AppendCommand(nil, token)[len("*1\r\n"):]))
			args := append(slices.Clone(base), token, "7")
			if verb == "extendlock" && (token == "PX" || token == "EX") {
				args = []string{verb, "k", token, "7"}
			}
			if err := parse(args); (err == nil) != documented {
				t.Errorf("%q: documented is %v, but: %v", args, documented, err)
			}
		}
	}
}

func parse(args []string) error {
	var raw [][]byte
	for _, a := range args {
		raw = append(raw, []byte(a))
	}
	_, err := grammar.Parse(raw)
	return err
}

func TestEmbeddedRedisListsLockCommands(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	addr := proxyTo(t, srv.Addr())
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		_, ours := withoutLocks(t, ask(t, addr, hello, "COMMAND"), "COMMAND")
		if diff := cmp.Diff(grammar.Verbs(), ours); diff != "" {
			t.Errorf("%s: COMMAND (-want +got)\n%s", hello, diff)
		}
		v := decode(t, ask(t, addr, hello, "COMMAND INFO get LOCK nope"))
		if len(v.Elems) != 3 || string(v.Elems[0].Elems[0].Str) != "get" || string(v.Elems[1].Elems[0].Str) != "lock" || !v.Elems[2].Null {
			t.Errorf("%s: COMMAND INFO get LOCK nope is %v", hello, v)
		}
		if v := decode(t, ask(t, addr, hello, "COMMAND DOCS LOCK get")); len(v.Elems) != 2 {
			t.Errorf("%s: COMMAND DOCS LOCK get is %v", hello, v)
		}
		if v := decode(t, ask(t, addr, hello, "COMMAND DOCS")); !v.IsError() { // so redis-cli falls back to its own
			t.Errorf("%s: COMMAND DOCS is no error", hello)
		}
		if v := decode(t, ask(t, addr, hello, "COMMAND GETKEYS UNLOCK a")); len(v.Elems) != 1 || string(v.Elems[0].Str) != "a" {
			t.Errorf("%s: COMMAND GETKEYS UNLOCK a is %v", hello, v)
		}
		if v := decode(t, ask(t, addr, hello, "COMMAND COUNT")); v.Int <= int64(len(grammar.Verbs())) {
			t.Errorf("%s: COMMAND COUNT is %v", hello, v)
		}
	}
}

func TestInfoLockproxyTellsWhatTheProxyDoes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	addr := proxyTo(t, srv.Addr())
	tx := proxytest.Dial(t, addr)
	tx.Ask("MULTI")
	for hello, kind := range map[string]resp.Kind{"HELLO 2": resp.Bulk, "HELLO 3": resp.Verbatim} {
		v := decode(t, ask(t, addr, hello, "info LOCKPROXY"))
		if v.Kind != kind {
			t.Errorf("%s: INFO lockproxy is of kind %q, want %q", hello, v.Kind, kind)
		}
		lines := strings.Split(string(v.Str), "\r\n")
		if lines[0] != "# Lockproxy" || lines[len(lines)-1] != "" {
			t.Errorf("%s: the section is not in Redis's shape: %q", hello, lines)
		}
		for _, want := range []string{"lockproxy_version:test", "upstream:up", "pins_by_reason:multi=1"} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no %s in %q", hello, want, lines)
			}
		}
	}
	tx.Ask("DISCARD")
	if v := decode(t, tx.Ask("INFO lockproxy")); !strings.Contains(string(v.Str), "pins_by_reason:\r\n") {
		t.Errorf("a pin is still counted after DISCARD: %s", v.Str)
	}
	gone := proxytest.Dial(t, addr)
	gone.Ask("WATCH k")
	_ = gone.Conn.Close()
	redistest.Eventually(t, 5*time.Second, "the pin of a client that hung up not to be counted", func() bool {
		return strings.Contains(string(decode(t, ask(t, addr, "INFO lockproxy")).Str), "pins_by_reason:\r\n")
	})
	if got, want := ask(t, addr, "INFO cluster"), ask(t, srv.Addr(), "INFO cluster"); got != want {
		t.Errorf("INFO cluster: %q, want %q", got, want)
	}
}

func TestInfoLockproxyAnswersWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := runProxy(t, srv.Addr())
	addr := p.Addrs()[0].String()
	srv.Stop()
	proxytest.WaitFor(t, "the proxy to notice", func() bool {
		_, err := proxytest.Dial(t, addr).Conn.Write(resp.AppendCommand(nil, "PING")) // without traffic it does not look
		ready, _ := p.Ready()
		return err == nil && !ready
	})
	if v := decode(t, ask(t, addr, "INFO lockproxy")); !strings.Contains(string(v.Str), "upstream:down\r\n") {
		t.Errorf("INFO lockproxy without Redis is %s", v.Str)
	}
	proxytest.Dial(t, addr).Loses("COMMAND INFO lock")
}

// proxyTo is the address of a proxy that runs for the test.
func proxyTo(t *testing.T, redisAddr string) string {
	t.Helper()
	return runProxy(t, redisAddr).Addrs()[0].String()
}

// runProxy runs a proxy for the test. It has found Redis when it returns.
func runProxy(t *testing.T, redisAddr string) *proxytest.Proxy {
	t.Helper()
	opts := proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisAddr}, Version: "test"}
	srv, _ := proxytest.Serve(t, opts)
	return srv
}
