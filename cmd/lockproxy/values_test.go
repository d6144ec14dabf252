package main

import "testing"

func TestSizesAreReadAsInRedisConf(t *testing.T) {
	tests := []struct {
		text  string
		want  Size
		print string
	}{
		{"0", 0, "0"},
		{"1", 1, "1"},
		{"1b", 1, "1"},
		{"1k", 1000, "1000"},
		{"1kb", 1 << 10, "1kb"},
		{"1m", 1_000_000, "1000000"},
		{"64mb", 64 << 20, "64mb"},
		{"64MB", 64 << 20, "64mb"},
		{"1g", 1_000_000_000, "1000000000"},
		{"3Gb", 3 << 30, "3gb"},
		{"1536mb", 1536 << 20, "1536mb"},
		{"9223372036854775807", 1<<63 - 1, "9223372036854775807"},
	}
	for _, test := range tests {
		var got Size
		if err := got.UnmarshalText([]byte(test.text)); err != nil || got != test.want {
			t.Errorf("%q: got %d, %v; want %d", test.text, got, err, test.want)
		}
		if got.String() != test.print {
			t.Errorf("%q prints as %s, want %s", test.text, got, test.print)
		}
		var again Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s read again: got %d, %v; want %d", got, again, err, got)
		}
	}
}

func TestBadSizesAreErrors(t *testing.T) {
	for _, text := range []string{"", "mb", "-1", "-1mb", "+1", "1.5mb", "1 mb", "64xb", "64bb", "1tb", "0x10", "9223372036854775808", "9007199254740993gb"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestModesAreOctalHoweverTheyAreWritten(t *testing.T) {
	for text, want := range map[string]FileMode{"700": 0o700, "0700": 0o700, `"770"`: 0o770, `""`: 0, "777": 0o777} {
		cfg, err := readFile(writeFile(t, "unix-socket-perm: "+text))
		if err != nil || cfg.UnixSocketPerm != want {
			t.Errorf("%s: got %o, %v; want %o", text, cfg.UnixSocketPerm, err, want)
		}
	}
	for _, text := range []string{"800", "rwx", "-1", "1777", "0o700", "[700]"} {
		if cfg, err := readFile(writeFile(t, "unix-socket-perm: "+text)); err == nil {
			t.Errorf("%s is read as %o", text, cfg.UnixSocketPerm)
		}
	}
}
