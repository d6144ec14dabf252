package cli

import (
	"strings"
	"testing"
	"time"
)

func TestMistakesAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"exec":                     "no lock is named\nUsage: lockproxy exec [flags] KEY -- COMMAND ...",
		"exec k":                   "no command after the lock k\n",
		"exec k --waitt 5 -- true": "unknown flag: --waitt, did you mean --wait?\n",
		"exec -u 9 k -- true":      "--url: 9 is no address, and exec locks a key, no file\n",
		"exec k j -- true":         "unexpected j between the lock k and --: exec takes one lock, then -- and the command\n",
		"exec k -n j -- true":      "unexpected j between the lock k and --: ",
		"exec -E 256 k -- true":    "--conflict-exit-code: 256 is not between 0 and 255\n",
		"exec -E x k -- true":      `--conflict-exit-code: "x" is not a whole number`,
		"exec --min-hold 2s --max-hold 1s k true": "--min-hold is longer than --max-hold\n",
		"unlock k --fence 0":                      "--fence: 0 is less than 1\n",
		"exec k --lease 5 -- true":                `--lease: time: missing unit in duration "5"`,
		"exec k --limit 0 -- true":                "--limit: 0 is less than 1\n",
		"exec k --limit -3 -- true":               "--limit: -3 is less than 1\n",
		"exec k --limit x -- true":                `--limit: "x" is not a whole number`,
		"exec k -s --limit 2 -- true":             "--shared and --limit are two kinds of locks: name one\n",
		"locks --count x":                         `--count: "x" is not a whole number`,
		"locks --count=-1":                        "--count: -1 is negative",
		"locks --match":                           "--match needs a value",
		"info":                                    "0 arguments, where one is expected: the name of the lock",
		"info k --fence 7":                        "unknown flag: --fence\n",
		"unlock k --shared":                       "--shared needs --owner\n",
		"info k -u 127.0.0.1:1":                   "the proxy at 127.0.0.1:1 cannot be reached: ",
		"info k -u redis://127.0.0.1/x":           "the database of the address, ",
	} {
		code, _, complaints := ran(t, strings.Fields(args)...)
		if code == ExitOK || !strings.Contains(complaints, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, complaints, want)
		}
	}
}

func TestTheNameThatIsMeant(t *testing.T) {
	names := []string{"--lock-lease", "--listen", "exec", "locks", "upstream.tls", "upstream.address", "LOCKPROXY_LOCK_LEASE", "LOCKPROXY_LISTEN"}
	for name, want := range map[string]string{
		"exce": "exec", "--lease": "--lock-lease", "LOCKPROXY_LEASE": "LOCKPROXY_LOCK_LEASE", "upstream.adress": "upstream.address", "lock": "locks",
		"upstream.host": "", "serve": "", "x": "",
	} {
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		if got := Meant(name, names); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestPatienceIsWrittenAsWithFlock(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "10": 10 * time.Second, "0.5": time.Second / 2, ".25": time.Second / 4, "1m30s": 90 * time.Second} {
		var w patience
		if err := w.Set(text); err != nil || w != (patience{true, want}) {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
	for _, text := range []string{"", ".", "1.2.3", "ten", "1e3", "0x10", "99999999999999999999"} {
		if err := new(patience).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
