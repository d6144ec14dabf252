package logging

import "testing"

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"12345678":                             "12345678",
		"123456789":                            "12345678... (1 more bytes)",
		"1234567é":                             "1234567... (2 more bytes)",
		"123456é":                              "123456é",
		"12345\U0001F512":                      "12345... (4 more bytes)",
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80": "\x80\x80\x80\x80... (5 more bytes)", // not UTF-8
	} {
		if got := Excerpt(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Excerpt("\x80\x80", 1); got != "... (2 more bytes)" {
		t.Errorf("%q", got)
	}
}
