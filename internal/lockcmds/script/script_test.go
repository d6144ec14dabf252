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

// The functions of lib use the keys of a script, and what publishes, by the names that the script gives them.
func TestEachNameOfAKeyOrArgumentIsKnown(t *testing.T) {
	explained := map[string]bool{}
	text, _ := files.ReadFile("lib/names.lua")
	for _, line := range regexp.MustCompile(`(?m)^--   ([a-z_, ]+?)  `).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(line[1], ", ") {
			explained[name] = true
		}
	}
	shared := regexp.MustCompile(`[^\w.':](lock|counter|channel|queue|deadlines|timeouts|permits|owners|publish)[^\w']`)
	text1 := regexp.MustCompile(`'[^'\n]*'|--.*`)
	for _, s := range all {
		s.composed()
		names := slices.Concat(s.keys.first, s.keys.row, s.args.first, s.args.row)
		for _, name := range names {
			if !explained[strings.TrimPrefix(strings.TrimPrefix(name, "plain_"), "fair_")] {
				t.Errorf("%s: what is %q?", s.name, name)
			}
		}
		for _, use := range regexp.MustCompile(`(KEYS|ARGV)\[`).FindAllString(s.Text(), -1) {
			t.Errorf("%s: %s", s.name, use)
		}
		for _, use := range shared.FindAllStringSubmatch(text1.ReplaceAllString(s.Text(), "''"), -1) {
			if name := use[1]; !slices.Contains(names, name) && !strings.Contains(s.Text(), "local timeouts, permits, owners") {
				t.Errorf("%s uses %s, which it has not", s.name, name)
			}
		}
	}
}
