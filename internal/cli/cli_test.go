package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// ran is the outcome of a subcommand.
func ran(t *testing.T, args ...string) (code int, out, complaints string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// The answers of both protocol versions, as a proxy gives them.
const (
	map3      = "%7\r\n+mode\r\n+exclusive\r\n+held-ms\r\n:61500\r\n+owner\r\n$2\r\n\x1bo\r\n+holds\r\n:2\r\n+ttl-ms\r\n:1500\r\n+fence\r\n:0\r\n+local-waiters\r\n:3"
	map2      = "*10\r\n$4\r\nmode\r\n$9\r\nexclusive\r\n$3\r\nkey\r\n$1\r\nk\r\n$5\r\nowner\r\n$1\r\no\r\n$5\r\nfence\r\n:7\r\n$3\r\nnew\r\n$1\r\nx"
	sharedMap = "%5\r\n+owner\r\n+o\r\n+mode\r\n+shared\r\n+holds\r\n:1\r\n+fence\r\n:7\r\n+holders\r\n*2\r\n" +
		"%7\r\n+owner\r\n+o\r\n+holds\r\n:1\r\n+ttl-ms\r\n:1500\r\n+fence\r\n:7\r\n+client\r\n+1.2.3.4:5\r\n+name\r\n+n\r\n+note\r\n+host 1\r\n" +
		"%4\r\n+owner\r\n+p\r\n+holds\r\n:2\r\n+ttl-ms\r\n:1000\r\n+fence\r\n:8"
)

func TestAnswersAsTextAndAsJSON(t *testing.T) {
	for _, test := range []struct {
		args   string
		answer string
		asked  string
		code   int
		out    string // "…" stands for anything
	}{
		{"info k", map3, "LOCKINFO k", ExitOK, "owner    \"\\x1bo\"\nmode     exclusive\nholds    2\nheld     1m1.5s\nlease    1.5s\nfence    -\nwaiters  3\n"},
		{"info k --json", map2, "LOCKINFO k", ExitOK, "{\n  \"key\": \"k\",\n  \"owner\": \"o\",…\"fence\": 7,…}\n"},
		{"info k --json", map3, "LOCKINFO k", ExitOK, "{…\"held_ms\": 61500,…}\n"},
		{"info k", "%4\r\n+owner\r\n+o\r\n+client\r\n+1.2.3.4:5\r\n+name\r\n+\x1b\r\n+x\r\n+y", "LOCKINFO k", ExitOK, "owner…held     -\n…client   1.2.3.4:5\nname     \"\\x1b\"\n"},
		{"info k", "%2\r\n+owner\r\n+o\r\n+note\r\n+\x1bhost 1", "LOCKINFO k", ExitOK, "owner…note     \"\\x1bhost 1\"\n"},
		{"info k", "_", "LOCKINFO k", ExitNo, "free\n"},
		{"info k --json", "*-1", "LOCKINFO k", ExitNo, "null\n"},
		{"info k", "-NOPERM x", "LOCKINFO k", ExitUnreachable, ""},
		{"locks", "*1\r\n" + map2, "LOCKLIST", ExitOK, "KEY  OWNER  MODE       HOLDS  HELD  LEASE  FENCE  WAITERS  CLIENT  NAME  NOTE  REENTRY\nk    o      exclusive  0      -     0s     7      0…\n"},
		{"info k", sharedMap, "LOCKINFO k", ExitOK, "owner    o\nmode     shared\n…\nHOLDER  HOLDS  LEASE  FENCE  CLIENT     NAME  NOTE\no       1      1.5s   7      1.2.3.4:5  n     host 1\np       2      1s     8…\n"},
		{"info k --json", sharedMap, "LOCKINFO k", ExitOK, "{…\"mode\": \"shared\",…\"holders\": [\n…\"owner\": \"p\",\n      \"holds\": 2,\n      \"lease_ms\": 1000,\n      \"fence\": 8\n    }\n  ]\n}\n"},
		{"info k", "%3\r\n+owner\r\n+o\r\n+mode\r\n+limit\r\n+limit\r\n:5", "LOCKINFO k", ExitOK, "owner    o\nmode     limit\n…limit    5\n"},
		{"info k --json", "%2\r\n+mode\r\n+limit\r\n+limit\r\n:5", "LOCKINFO k", ExitOK, "{…\"mode\": \"limit\",\n  \"limit\": 5,…}\n"},
		{"locks --match a* --count 5 --json", "*0", "LOCKLIST MATCH a* COUNT 5", ExitOK, "[]\n"},
		{"unlock k", ":1", "FORCEUNLOCK k", ExitOK, "unlocked\n"},
		{"unlock k", ":0", "FORCEUNLOCK k", ExitNo, "free\n"},
		{"unlock k --owner o", ":1", "UNLOCK k OWNER o", ExitOK, "unlocked\n"},
		{"unlock k --owner o", ":0", "UNLOCK k OWNER o", ExitOK, "one hold released, still held\n"},
		{"unlock k --owner o --shared", ":1", "UNLOCK k OWNER o SHARED", ExitOK, "unlocked\n"},
		{"unlock k --fence 7", ":1", "UNLOCK k FENCE 7", ExitOK, "unlocked\n"},
		{"unlock k --owner o --fence 7", ":0", "UNLOCK k OWNER o FENCE 7", ExitOK, "one hold released, still held\n"},
		{"unlock k --fence 7", "-NOTHELD x", "UNLOCK k FENCE 7", ExitNo, ""},
		{"unlock k --owner o --json", ":0", "UNLOCK k OWNER o", ExitOK, "{\n  \"key\": \"k\",\n  \"unlocked\": false\n}\n"},
		{"unlock \xff --owner=\xfe --json", ":1", "UNLOCK \xff OWNER \xfe", ExitOK, "{\n  \"key\": \"\\ufffd\",\n  \"key_base64\": \"/w==\",\n  \"unlocked\": true\n}\n"},
		{"locks --match \xff*", "*1\r\n%2\r\n+key\r\n$3\r\na\xffb\r\n+name\r\n$1\r\n\x1b", "LOCKLIST MATCH \xff*", ExitOK, "KEY…\"a\\xffb\"…\"\\x1b\"…\n"},
		{"unlock k --owner o", "-NOTHELD x", "UNLOCK k OWNER o", ExitNo, ""},
		{"unlock k --owner o", "-LOSTLEASE x", "UNLOCK k OWNER o", ExitNo, ""},
		{"unlock k", "-CLUSTERDOWN \x1b", "FORCEUNLOCK k", ExitUnreachable, ""},
		{"unlock k", "-CLUSTERDOWN x", "FORCEUNLOCK k", ExitUnreachable, ""},
		{"unlock k", "-ERR unknown command 'FORCEUNLOCK', with args beginning with: '\x1b'", "FORCEUNLOCK k", ExitUnreachable, ""},
	} {
		proxy := startStub(t, test.answer)
		code, out, complaints := ran(t, append(strings.Fields(test.args), "-u", proxy.addr)...)
		proxy.want(t, test.asked)
		parts := strings.Split(test.out, "…")
		at := 0
		for _, part := range parts {
			n := strings.Index(out[at:], part)
			if n < 0 || at == 0 && n > 0 {
				t.Errorf("%s: %q, want %q", test.args, out, test.out)
				break
			}
			at += n + len(part)
		}
		if code != test.code || at != len(out) {
			t.Errorf("%s, answer %q: exit code %d, want %d; %q behind what is wanted", test.args, test.answer, code, test.code, out[min(at, len(out)):])
		}
		if (complaints != "") != (test.out == "") || strings.Contains(complaints, "\x1b") || strings.Contains(complaints, "with args") {
			t.Errorf("%s: complaints %q", test.args, complaints)
		}
	}
}

// What is wrong before the proxy is asked has exit codes of its own, and no lock is taken.
func TestExecRefusesBeforeItAsks(t *testing.T) {
	plainFile := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plainFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{
		"exec k --":                          ExitUsage,
		"exec  k -- true":                    ExitUsage, // the name of the lock is empty
		"exec --lease 999ms k -- true":       ExitUsage,
		"exec --wait -1s k -- true":          ExitUsage,
		"exec --max-hold -1s k -- true":      ExitUsage,
		"exec --min-hold -1s k -- true":      ExitUsage,
		"exec --nosuch k -- true":            ExitUsage,
		"exec k -- " + plainFile:             ExitNoExec,
		"exec k -- " + plainFile + ".nosuch": ExitNotFound,
		"exec k -- nosuch-command":           ExitNotFound,
	} {
		proxy := startStub(t)
		words := strings.Split(args, " ")
		words = append([]string{words[0], "-u", proxy.addr}, words[1:]...)
		if code, _, complaints := ran(t, words...); code != want || complaints == "" {
			t.Errorf("%q: exit code %d, want %d: %q", words, code, want, complaints)
		}
		proxy.want(t)
	}
}

// Who has the lock is said if the proxy says so.
func TestABusyLockHasItsHolder(t *testing.T) {
	for answer, want := range map[string]string{
		"%4\r\n+owner\r\n+\x1bo\r\n+client\r\n+1.2.3.4:5\r\n+name\r\n+cron\r\n+held-ms\r\n:61000": `: owner "\x1bo", client 1.2.3.4:5 (cron), since 20`,
		"*2\r\n+owner\r\n+o":                   ": owner o\n",
		"*4\r\n+owner\r\n+o\r\n+note\r\n+web1": ": owner o, web1\n",
		"_":                                    "has the lock\n", // it is free by now
		"-NOPERM x":                            "has the lock\n",
	} {
		proxy := startStub(t, "_", answer)
		code, _, complaints := ran(t, "exec", "-u", proxy.addr, "-n", "k", "--", "true")
		if code != ExitBusy || !strings.Contains(complaints, want) || strings.Contains(answer, "61000") && !strings.HasSuffix(complaints, " (1m1s)\n") {
			t.Errorf("%q: exit code %d, %q", answer, code, complaints)
		}
	}
}

// A script that says itself that a lock is busy chooses how it learns that.
func TestABusyLockMayBeQuiet(t *testing.T) {
	proxy := startStub(t, "_", "_")
	code, _, complaints := ran(t, "exec", "-u", proxy.addr, "-n", "-E", "0", "--quiet", "k", "--", "true")
	if code != 0 || complaints != "" {
		t.Errorf("exit code %d, %q", code, complaints)
	}
}

// An exec that would wait for the one around it says so. Another lock of that name, or a permit more, is none of it.
func TestAnExecThatWouldWaitForItself(t *testing.T) {
	const (
		asks   = "LOCKINFO k"
		held   = "*4\r\n+mode\r\n+exclusive\r\n+fence\r\n:7"
		shared = "*6\r\n+mode\r\n+shared\r\n+fence\r\n:6\r\n+holders\r\n*2\r\n*2\r\n+fence\r\n:6\r\n*2\r\n+fence\r\n:7"
	)
	for _, test := range []struct {
		flags, outer, answer string
		within               bool
	}{
		{"", "7", held, true},
		{"-s", "7", held, true},
		{"--limit 1", "7", held, true},
		{"", "7", shared, true},
		{"-s", "7", shared, false},
		{"--limit 2", "7", strings.Replace(shared, "+shared", "+limit", 1), false},
		{"", "8", held, false},
		{"", "7", "_", false},
		{"", "7", "-NOPERM x", false},
	} {
		t.Setenv("LOCK_KEY", "k")
		t.Setenv("LOCK_FENCE", test.outer)
		proxy := startStub(t, test.answer, "-ERR x")
		code, _, complaints := ran(t, append(append([]string{"exec", "-u", proxy.addr}, strings.Fields(test.flags)...), "k", "--", "true")...)
		if told := strings.Contains(complaints, "k: the exec around this one has the lock"); told != test.within || (code == ExitBusy) != told {
			t.Errorf("%+v: exit code %d, %q", test, code, complaints)
		}
	}
	t.Setenv("LOCK_KEY", "j")
	proxy := startStub(t, "-ERR x")
	ran(t, "exec", "-u", proxy.addr, "-n", "k", "--", "true")
	if asked := proxy.heard(); len(asked) != 1 || asked[0] == asks {
		t.Errorf("inside another lock the proxy is asked %q", asked)
	}
}

// A request that may succeed later is repeated. Others end at once.
func TestAwaitingALock(t *testing.T) {
	const ask, extend = "LOCK k OWNER o GRACE 5000", "EXTENDLOCK k OWNER o PX 5000"
	for _, test := range []struct {
		answers []string
		asked   []string
		want    error
	}{
		{[]string{":7", ":1"}, []string{ask, extend}, nil},
		{[]string{"_"}, []string{ask}, errBusy},
		{[]string{"-NOPERM x"}, []string{ask}, Error("NOPERM x")},
		{[]string{"-OVERLOADED x", ":7", ":1"}, []string{ask, ask, extend}, nil},
		{[]string{"", "_"}, []string{ask, ask}, errBusy},                         // the proxy has gone away, and is back
		{[]string{":7", "-NOTHELD x", "_"}, []string{ask, extend, ask}, errBusy}, // taken away at once
	} {
		proxy := startStub(t, test.answers...)
		target, err := parseTarget(proxy.addr)
		if err != nil {
			t.Fatal(err)
		}
		h := newHolder(target, "k", 5*time.Second)
		h.Owner = "o"
		_, err = (&execCommand{}).await(t.Context(), h)
		if !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.answers, err, test.want)
		}
		proxy.want(t, test.asked...)
		h.Disconnect()
	}
}

func TestThePasswordOfAFile(t *testing.T) {
	for content, want := range map[string]string{"pw": "pw", "pw\n": "pw", "pw\r\n": "pw", "pw\n\n": "pw\n", " pw ": " pw ", "": ""} {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if target, err := (connection{URL: "redis://u@h", PasswordFile: file}).target(); err != nil || target.Password != want || target.User != "u" {
			t.Errorf("%q: %+v, %v", content, target, err)
		}
	}
	if _, err := (connection{URL: "redis://h", PasswordFile: "/nosuch"}).target(); err == nil {
		t.Error("a missing file is no error")
	}
}

// Only the push about the holder's own grant is a loss. Its fence comes in either form.
func TestOnlyThePushAboutTheOwnGrantIsALoss(t *testing.T) {
	for push, lost := range map[string]bool{
		">4\r\n+lock-lost\r\n+k\r\n:7\r\n+taken\r\n":  true,
		">3\r\n+lock-lost\r\n+k\r\n$1\r\n7\r\n":       true,
		">4\r\n+lock-lost\r\n+k\r\n:7\r\n+forced\r\n": true,
		">3\r\n+lock-lost\r\n+k\r\n:6\r\n":            false,
		">3\r\n+lock-lost\r\n+k\r\n+x\r\n":            false,
		">3\r\n+lock-lost\r\n+j\r\n:7\r\n":            false,
		">3\r\n+message\r\n+k\r\n:7\r\n":              false,
		">2\r\n+lock-lost\r\n+k\r\n":                  false,
	} {
		v, _, err := resp.Decode([]byte(push))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		r := &runner{holder: &Holder{Key: "k", Fence: 7}, renewal: newLockRenewal(Config{Lease: time.Minute}, now), lease: time.Minute}
		r.pushed(v)
		r.renewal.Step(now)
		if got := r.renewal.Reason() == Taken; got != lost || strings.Contains(push, "forced") != (r.lost == "forced") {
			t.Errorf("%q: lost %v", push, got)
		}
	}
}

func TestTheHelpAndTheList(t *testing.T) {
	if code, out, _ := ran(t, "exec", "--help"); code != ExitOK || !strings.Contains(out, "75") {
		t.Errorf("exit code %d: %q", code, out)
	}
	for _, sub := range Subcommands() {
		if !Is([]string{sub.Name}) || sub.Name == guardName || sub.Help == "" {
			t.Errorf("%+v", sub)
		}
	}
	if Is(nil) || Is([]string{"--config"}) || !Is([]string{guardName}) {
		t.Error("not only subcommands are some")
	}
}
