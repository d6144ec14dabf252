package cli

import "testing"

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
	for _, text := range []string{"http://h", "redis://h/x", "redis://h/-1", "redis://h:port", "redis://a:b:c:%zz@h"} {
		if got, err := parseTarget(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
