package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

func TestScriptHeadersNameKeysArgumentsAndReturns(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	keys := regexp.MustCompile(`^-- KEYS\[(\d)(\.\.4?n)?\] +[a-z]+(, [a-z]+)* +\S`)
	args := regexp.MustCompile(`^-- ARGV\[(\d\d?)?(\.\.([45]n)?)?\] *[a-z_]+(, [a-z_]+)* +\S`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		header, body, ok := strings.Cut(string(text), "\n\n")
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
		nKeys, nArgs := 0, 0
		for line := range strings.Lines(header) {
			if !strings.HasPrefix(line, "--") || len(line) > 121 {
				t.Errorf("%s: header line %q", file, line)
			}
			if strings.HasPrefix(line, "-- KEYS") {
				nKeys++
				if !keys.MatchString(line) {
					t.Errorf("%s: %q", file, line)
				}
			}
			if strings.HasPrefix(line, "-- ARGV") {
				nArgs++
				if !args.MatchString(line) {
					t.Errorf("%s: %q", file, line)
				}
			}
		}
		for i := 1; i <= 20; i++ {
			key, arg := fmt.Sprintf("KEYS[%d]", i), fmt.Sprintf("ARGV[%d]", i)
			if strings.Contains(body, key) && i > nKeys {
				t.Errorf("%s uses %s and does not name it", file, key)
			}
			if strings.Contains(body, arg) && i > nArgs {
				t.Errorf("%s uses %s and does not name it", file, arg)
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
