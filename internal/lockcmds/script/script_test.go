package script

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachScriptSaysWhatItDoesAndReturns(t *testing.T) {
	names, count := newComposer().scripts, 0
	for text := range luaFiles(t) {
		for _, header := range regexp.MustCompile(`(?m)^--@ ([a-z_]+): .*\n(--.*\n)*`).FindAllStringSubmatch(text, -1) {
			if names[header[1]] == nil {
				continue // it is of lib
			}
			count++
			if !strings.Contains(header[0], "\n-- Returns  ") {
				t.Errorf("%s: no line with what it returns", header[1])
			}
		}
		for line := range strings.Lines(text) {
			if len(line) > 121 {
				t.Errorf("too long: %s", line)
			}
		}
	}
	if count != len(names) || count != len(all) {
		t.Errorf("%d headers, %d scripts in the files, %d in the package", count, len(names), len(all))
	}
	for id, s := range all {
		if s.ID() != id || strings.Contains(s.Text(), "--@") {
			t.Errorf("%s: %d, %s", s.Name(), s.ID(), s.Text())
		}
	}
}

// luaFiles are the texts of all files.
func luaFiles(t *testing.T) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		names, err := fs.Glob(files, "*.lua")
		more, _ := fs.Glob(files, "lib/*.lua")
		if err != nil || len(more) == 0 {
			t.Fatal(err, more)
		}
		for _, name := range slices.Concat(names, more) {
			text, err := files.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(string(text)) {
				return
			}
		}
	}
}

// A function is defined in front of each call of it, in the same block or around it.
func TestEachFunctionIsDefinedWhereItIsCalled(t *testing.T) {
	c := newComposer()
	lua := []string{"unpack", "tonumber", "type", "ipairs", "pairs", "function", "and", "or", "if", "elseif", "not", "in"}
	for _, s := range all {
		defined := map[string]int{} // the indent of the block
		for line := range strings.Lines(s.Text()) {
			at := indent(line)
			for name, of := range defined {
				if of > at {
					delete(defined, name)
				}
			}
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), "local function ")
			if ok {
				name, _, _ := strings.Cut(rest, "(")
				defined[name] = at
			}
			for _, name := range c.calls([]string{line}) {
				if _, ok := defined[name]; !ok && !strings.ContainsAny(name, ".:") && !slices.Contains(lua, name) {
					t.Errorf("%s: %s is not defined: %s", s.Name(), name, line)
				}
			}
		}
	}
}
