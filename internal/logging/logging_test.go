package logging

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestRepeatedEntriesBecomeOneSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.ErrorLevel)
		r := NewRepeats(zap.New(core), 2, 10*time.Second)
		for n := range 100 {
			r.Write(Audit, "limit reached", "max-pins", zap.Int("n", n))
		}
		r.Write(Audit, "limit reached", "max-clients")
		if logs.Len() != 3 {
			t.Fatalf("%d entries before the end of the period", logs.Len())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if last := logs.All()[3].ContextMap(); last["repeated"] != int64(98) || last["n"] != int64(99) || last["within_seconds"] != 10.0 {
			t.Errorf("the summary is %v", last)
		}
		for range 50 { // the flood goes on
			r.Write(Audit, "limit reached", "max-pins")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if logs.Len() != 5 {
			t.Errorf("%d entries after the second period", logs.Len())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.kinds) != 0 {
			t.Error("a kind without entries is kept")
		}
		for range 3 {
			r.Write(zap.WarnLevel, "hidden", "")
		}
		r.Flush()
		if logs.Len() != 5 {
			t.Error("the level is not kept")
		}
		for range 3 {
			r.Write(Audit, "last", "")
		}
		r.Flush()
		if last := logs.All()[logs.Len()-1].ContextMap(); last["repeated"] != int64(1) {
			t.Errorf("Flush writes %v", last)
		}
	})
}

func TestAuditIsAboveAllLevels(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	zap.New(core).Log(Audit, "seen")
	if logs.Len() != 1 {
		t.Error("an audit entry is not written")
	}
	var names array
	for _, l := range []zapcore.Level{Audit, zap.WarnLevel} {
		EncodeLevel(l, &names)
	}
	if len(names.words) != 2 || names.words[0] != "audit" || names.words[1] != "warn" {
		t.Error(names.words)
	}
}

type array struct {
	zapcore.PrimitiveArrayEncoder
	words []string
}

func (a *array) AppendString(s string) { a.words = append(a.words, s) }

func TestDurationsHaveTheirUnit(t *testing.T) {
	f := Seconds("held", 1500*time.Millisecond)
	enc := zapcore.NewMapObjectEncoder()
	f.AddTo(enc)
	if enc.Fields["held_seconds"] != 1.5 {
		t.Error(enc.Fields)
	}
}

// One FORCEUNLOCK of a name of 512 MB would be an entry of as much.
func TestTextsOfClientsAreShortened(t *testing.T) {
	for _, text := range []string{"", "invoice:7", strings.Repeat("k", longestText)} {
		if got := Shortened(text); got != text {
			t.Errorf("%q", got)
		}
	}
	if got, want := Text("key", strings.Repeat("k", 1<<20)).String, strings.Repeat("k", longestText)+"... (1048320 more bytes)"; got != want {
		t.Errorf("%q", got)
	}
}

// Two texts that are not UTF-8 are two texts in the log.
func TestTextsAreToldApart(t *testing.T) {
	for text, want := range map[string]string{
		"café":        "café",
		"caf\xe9":     `"caf\xe9"`,
		"caf\xe8":     `"caf\xe8"`,
		"caf\ufffd":   "caf\ufffd",
		"line\nbreak": "line\nbreak", // the encoder writes \n
	} {
		if got := Text("key", text).String; got != want {
			t.Errorf("%q is written as %q, want %q", text, got, want)
		}
	}
}

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
