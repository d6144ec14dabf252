package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

func TestScriptHeadersSayWhatTheScriptDoesAndReturns(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		header, _, ok := strings.Cut(string(text), "\n\n")
		if !ok {
			t.Errorf("%s: no blank line after the header", file)
			continue
		}
		if first := "-- " + filepath.Base(file) + ": "; !strings.HasPrefix(header, first) {
			t.Errorf("%s: does not start with %q", file, first)
		}
		if !strings.Contains(header, "\n-- Returns  ") {
			t.Errorf("%s: no line with what it returns", file)
		}
		for line := range strings.Lines(header) {
			if !strings.HasPrefix(line, "--") || len(line) > 121 {
				t.Errorf("%s: header line %q", file, line)
			}
		}
	}
}

func TestEveryScriptFileIsEmbedded(t *testing.T) {
	byName := scripts()
	files, _ := filepath.Glob("*.lua")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		one := byName[strings.TrimSuffix(filepath.Base(file), ".lua")]
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if end := lines[len(lines)-1] + "\n"; one == nil || !strings.HasSuffix(one.Text(), end) || strings.Contains(one.Text(), "\n--") {
			t.Errorf("%s is not embedded under its name", file)
		}
	}
	equal(t, "scripts", len(byName), len(files))
	for id, s := range script.All() {
		equal(t, s.Name(), s.ID(), id)
	}
}
