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
		{"5GiB", 5 << 30, "5gb"},
		{"3mib", 3 << 20, "3mb"},
		{"2kib", 2 << 10, "2kb"},
		{"64mb", 64 << 20, "64mb"},
		{"64MB", 64 << 20, "64mb"},
		{"1g", 1_000_000_000, "1000000000"},
		{"3Gb", 3 << 30, "3gb"},
		{"1536mb", 1536 << 20, "1536mb"},
		{"9223372036854775807", 1<<63 - 1, "9223372036854775807"},
	}
	for _, text := range []string{"mb", "-1mb", "+1", "64bb", "1tb", "9223372036854775808", "9007199254740993gb"} {
		if err := new(Size).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
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

func TestMemoryLimitIsASizeOrAShare(t *testing.T) {
	tests := []struct {
		text string
		want int // of a GiB; -1: an error
	}{
		{"512mb", 512 << 20},
		{"2g", 2e9},
		{"50%", 1 << 29},
		{"100%", 1 << 30},
		{"1%", int(LeastMemory)},
		{"0%", -1},
		{"101%", -1},
		{"-1%", -1},
		{"1.5%", -1},
		{"50 %", -1},
		{"%", -1},
		{"", -1},
		{"1.5gb", -1},
		{"-1", -1},
	}
	for _, test := range tests {
		var m MemoryLimit
		err := m.UnmarshalText([]byte(test.text))
		if (err != nil) != (test.want < 0) {
			t.Errorf("%q: %v", test.text, err)
		}
		if err != nil {
			continue
		}
		if got := m.Of(1 << 30); got/1000 != test.want/1000 && test.want-got > 100 {
			t.Errorf("%q of a GiB is %d, want %d", test.text, got, test.want)
		}
		var again MemoryLimit
		if err := again.UnmarshalText([]byte(m.String())); err != nil || again != m {
			t.Errorf("%q is written as %q, which reads as %v, %v", test.text, m, again, err)
		}
	}
}

func TestReplicasAreANumberOrAll(t *testing.T) {
	for text, want := range map[string]Replicas{"0": 0, "2": 2, "all": AllReplicas} {
		var r Replicas
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "-1", "ALL", "1.5", "2147483648", "01"} {
		if err := new(Replicas).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}
