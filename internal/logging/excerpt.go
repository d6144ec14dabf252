package logging

import (
	"fmt"
	"unicode/utf8"
)

// Excerpt is a text of at most that many bytes as it is, and of a longer one the beginning and the number of the other
// bytes, as SLOWLOG writes it. No character of UTF-8 is cut in two. What it returns does not keep a longer text in
// memory.
func Excerpt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d more bytes)", text[:end], len(text)-end)
}
