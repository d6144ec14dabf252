// Package logging has the forms that entries of the log share: the audit level, durations as numbers with their unit,
// texts of clients, and summaries of entries that repeat. It writes them without a delay for the proxy.
//
//	Repeats.Write ──► the first entries of a period ──► log ──► Output ──► a bounded queue ──► standard error
//	              └─► the others, counted ── end of the period ──► one summary
//
// An Output has one goroutine, which writes. The timer of a period runs only while entries are held back, or may be.
package logging

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Audit is the level of entries about acts that an operator has to answer for: refused logins, locks ended by force,
// limits that refuse clients. It is above all other levels, so the log has these entries at each log level.
const Audit = zapcore.FatalLevel + 1

// EncodeLevel writes a level in lower case.
func EncodeLevel(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
	if l == Audit {
		enc.AppendString("audit")
		return
	}
	zapcore.LowercaseLevelEncoder(l, enc)
}

// Seconds is a duration as a number. The name of the field has its unit: Seconds("held", d) is held_seconds.
func Seconds(name string, d time.Duration) zap.Field {
	return zap.Float64(name+"_seconds", d.Round(time.Microsecond).Seconds())
}

// longestText is how much of a client's text an entry has, in bytes.
const longestText = 256

// Text is a text that clients choose, such as the name of a lock. It may be of any length, so the entry has its
// beginning. Bytes that are not UTF-8 are written as \x and two digits, in quotes: the encoder of the log would make
// the same character of all of them.
func Text(name, text string) zap.Field { return zap.String(name, Shortened(text)) }

// Shortened is a text as Text writes it.
func Shortened(text string) string {
	text = Excerpt(text, longestText)
	if !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

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
