package main

import (
	"strings"
	"testing"
)

func TestPasswordComesFromItsFile(t *testing.T) {
	for text, want := range map[string]string{"secret": "secret", "secret\n": "secret", "secret\r\n": "secret", "two\nlines\n": "two\nlines", " blanks \n": " blanks "} {
		name := writeFile(t, text)
		for _, args := range [][]string{{"--upstream-user", "somebody", "--upstream-password-file", name}, {"--config", writeFile(t, "upstream:\n  password-file: "+name+"\n")}} {
			cmd, err := load(args)
			if err != nil || string(cmd.Upstream.Password) != want {
				t.Errorf("%q: %q, %v", text, string(cmd.Upstream.Password), err)
			}
		}
	}
}

func TestUselessPasswordFileIsAnError(t *testing.T) {
	tests := map[string][]string{
		"no such file":               {"--upstream-password-file", "/nowhere/at/all"},
		"is empty":                   {"--upstream-password-file", writeFile(t, "\n")},
		"too large":                  {"--upstream-password-file", writeFile(t, strings.Repeat("hush", 100_000))},
		"/dev/zero is too large":     {"--upstream-password-file", "/dev/zero"},
		"excludes upstream.password": {"--upstream-password-file", writeFile(t, "hush"), "--upstream-password", "hush"},
		"is a directory":             {"--upstream-password-file", t.TempDir()},
	}
	for want, args := range tests {
		_, err := load(args)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "upstream.password-file: ") {
			t.Errorf("got %v, want %s", err, want)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
