package cli

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Target{
		"redis://127.0.0.1:7379":     {Network: "tcp", Addr: "127.0.0.1:7379"},
		"example.org":                {Network: "tcp", Addr: "example.org:7379"},
		"redis://:secret@h:1/2":      {Network: "tcp", Addr: "h:1", Password: "secret", DB: 2},
		"redis://me:s%40@[::1]:1":    {Network: "tcp", Addr: "[::1]:1", User: "me", Password: "s@"},
		"unix:///run/lp.sock?db=3":   {Network: "unix", Addr: "/run/lp.sock", DB: 3},
		"unix://me:x@/run/lp.sock":   {Network: "unix", Addr: "/run/lp.sock", User: "me", Password: "x"},
		"redis://127.0.0.1:7379?db=": {Network: "tcp", Addr: "127.0.0.1:7379"},
	} {
		if got, err := parseTarget(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := parseTarget("rediss://example.org"); err != nil || got.TLS == nil || got.TLS.ServerName != "example.org" {
		t.Errorf("rediss: %+v, %v", got, err)
	}
	for _, text := range []string{"http://h", "redis://h/x", "redis://h/-1", "redis://h:port", "redis://a:b:c:%zz@h", "secret://h", "redis://u:1/secret@h", "redis://u:secret", "redis://h?db=secret"} {
		if got, err := parseTarget(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// A password that is given in place of the address is taken for a host.
func TestAHostThatIsNotFoundIsNotQuoted(t *testing.T) {
	for _, text := range []string{"secret.invalid", "redis://secret.invalid#x@127.0.0.1"} {
		code, _, complaints := ran(t, "info", "k", "-u", text)
		if code != ExitUnreachable || strings.Contains(complaints, "secret") || !strings.Contains(complaints, "is not found") {
			t.Errorf("%s: exit code %d, %q", text, code, complaints)
		}
	}
}
