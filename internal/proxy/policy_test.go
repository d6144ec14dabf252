package proxy

import (
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/redistest"
	"lockproxy/internal/upstream"
)

// Names of groups, consumers and streams may be words of the command's own grammar.
func TestOnlyAStreamReadThatCannotWaitIsShared(t *testing.T) {
	table := newPolicyTable(upstreamTable(t), lockcmds.Verbs())
	for _, c := range []struct {
		cmd  string
		want policy
	}{
		{"XREAD STREAMS s 0", shared},
		{"xread count 5 streams s 0", shared},
		{"XREAD COUNT BLOCK STREAMS s 0", shared}, // no number: refused
		{"XREAD STREAMS block block 0 0", shared},
		{"XREADGROUP GROUP block block STREAMS s >", shared},
		{"XREADGROUP GROUP streams c COUNT 1 NOACK STREAMS s >", shared},
		{"XREADGROUP NOACK GROUP g streams STREAMS s >", shared},
		{"XREAD BLOCK 0 STREAMS s $", pinOnce},
		{"XREAD COUNT 1 block 0 STREAMS s $", pinOnce},
		{"XREADGROUP GROUP streams c BLOCK 0 STREAMS s >", pinOnce},
		{"XREADGROUP GROUP g streams BLOCK 0 STREAMS s >", pinOnce},
		{"XREADGROUP GROUP streams streams NOACK BLOCK 0 STREAMS s >", pinOnce},
		{"XREADGROUP COUNT 1 GROUP streams c BLOCK 0 STREAMS s >", pinOnce},
		{"XREADGROUP BLOCK 0 GROUP streams c STREAMS s >", pinOnce},
		{"XREADGROUP COUNT streams BLOCK 0 GROUP g c STREAMS s >", pinOnce},
		{"XREADGROUP GROUP g c CLAIM 10 BLOCK 0 STREAMS s >", pinOnce}, // an option that is not known here
		{"XREAD NEWOPTION STREAMS s $", pinOnce},
		{"XREAD \u017ftreams s $", pinOnce}, // a letter that only Unicode takes for an s
		{"XREAD", pinOnce},
		{"XREAD COUNT", pinOnce},
		{"XREADGROUP GROUP g", pinOnce},
		{"XREAD " + strings.Repeat("x", 100) + " STREAMS s $", pinOnce},
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(c.cmd) {
			args = append(args, []byte(word))
		}
		if got := table.lookup(args[0]).policyOf(args); got != c.want {
			t.Errorf("%s: policy %d, want %d", c.cmd, got, c.want)
		}
	}
}

// upstreamTable is what a Redis lists that does not list its commands.
func upstreamTable(t testing.TB) *upstream.Table {
	t.Helper()
	u, err := upstream.New(upstream.Options{Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return u.Commands()
}

// A stream read that waits holds up nobody, whatever its group, consumer and streams are called.
func TestAStreamReadThatWaitsHoldsUpNobody(t *testing.T) {
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		other := dialClient(t, address(srv))
		for i, cmd := range []string{
			"XREADGROUP GROUP streams c BLOCK 0 STREAMS s >",
			"XREADGROUP GROUP g streams BLOCK 0 STREAMS s >",
			"XREADGROUP COUNT 7 GROUP streams streams NOACK BLOCK 0 STREAMS streams >",
			"XREAD COUNT 3 BLOCK 0 STREAMS count block $ $",
		} {
			for _, key := range []string{"s", "streams"} {
				for _, group := range []string{"g", "streams"} {
					redis.Do(t, "XGROUP", "CREATE", key, group, "$", "MKSTREAM")
				}
			}
			waiter := dialClient(t, address(srv))
			waiter.raw(inline(cmd))
			redistest.Eventually(t, patience, "the blocked client", func() bool {
				info, _ := redis.Do(t, "INFO", "clients").(string)
				return strings.Contains(info, "\nblocked_clients:1\r")
			})
			if got := other.quiet("SET", "k", strconv.Itoa(i)); got != "+OK\r\n" {
				t.Errorf("%s: another client got %q", cmd, got)
			}
			for _, key := range []string{"s", "streams", "block"} {
				redis.Do(t, "XADD", key, "*", "f", "v")
			}
			if b, err := waiter.frame(); err != nil || !strings.HasPrefix(b, "*1") {
				t.Errorf("%s: %q, %v", cmd, b, err)
			}
			redis.Do(t, "FLUSHALL")
		}
	})
}

// A prefix of CLIENT TRACKING may be called like the option behind it.
func TestRedirectionBehindAPrefixOfThatName(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		a, b := dialClient(t, address(srv)), dialClient(t, address(srv))
		id := strings.Trim(a.quiet("CLIENT", "ID"), ":\r\n")
		a.quiet("SUBSCRIBE", "__redis__:invalidate")
		if got := b.quiet("CLIENT", "TRACKING", "ON", "PREFIX", "redirect", "BCAST", "PREFIX", "prefix", "REDIRECT", id); got != "+OK\r\n" {
			t.Errorf("CLIENT TRACKING: %q", got)
		}
		if got := b.quiet("CLIENT", "GETREDIR"); got != ":"+id+"\r\n" {
			t.Errorf("redirected to %q, not to %s", got, id)
		}
	})
}

func TestKeywordsAreASCIIWordsInAnyCase(t *testing.T) {
	for arg, want := range map[string]string{"SetName": "setname", "\u212aILL": "\u212aill", "SET\u0130NFO": "set\u0130nfo", strings.Repeat("a", 65): "?", "": ""} {
		if got := argument([][]byte{[]byte(arg)}, 0); got != want {
			t.Errorf("%q: %q, want %q", arg, got, want)
		}
	}
	if got := argument(nil, 0); got != "" {
		t.Errorf("no argument: %q", got)
	}
}
