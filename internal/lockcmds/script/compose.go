package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file makes the texts of the scripts, in which each function of lib stands that they use. A line says where:
//
//	--@          the functions that are called from here to the end of the block, as far as they are not known already
//	--@ fence    the lines of lib by that name
//
// Redis makes the functions of a script anew each time it comes to them. So such a line stands behind the usual way
// through a script, and in blocks that are seldom run.
//
// A file has any number of scripts. Each begins with a line of its name, as "--@ release: release one hold". In lib,
// lines to be inserted begin so, and end with the next blank line.

//go:embed *.lua lib/*.lua
var files embed.FS

// once composes all texts when one is first needed: the subcommands, as exec, which start two processes of this program
// each time, need none.
var once sync.Once

func (s *Script) composed() *Script {
	once.Do(func() {
		c := newComposer()
		for _, s := range all {
			s.compose(c)
		}
	})
	return s
}

func (s *Script) compose(c *composer) {
	own := c.scripts[s.name]
	if own == nil {
		panic("BUG: no script " + s.name)
	}
	s.text = strings.Join(c.expand(own, map[string]bool{}), "\n") + "\n"
	s.keys, s.args = namesIn(s.text, "KEYS"), namesIn(s.text, "ARGV")
	s.counter, s.publish = slices.Index(s.keys.first, "counter"), slices.Index(s.args.first, "publish")
	sum := sha1.Sum([]byte(s.text)) // Redis names scripts by SHA-1
	s.sha = hex.EncodeToString(sum[:])
	s.evalsha = string(resp.AppendBulk(resp.AppendBulk(nil, "EVALSHA"), s.sha))
}

// composer has the lines of all files by name, without comments.
type composer struct {
	scripts, functions, inserts map[string][]string
	called                      *regexp.Regexp
}

func newComposer() *composer {
	c := &composer{
		scripts: map[string][]string{}, functions: map[string][]string{}, inserts: map[string][]string{},
		called: regexp.MustCompile(`[\w.:]+\(`),
	}
	c.read(".", c.scripts)
	c.read("lib", c.inserts)
	return c
}

// read reads the files of a directory.
func (c *composer) read(dir string, named map[string][]string) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, entry := range entries {
		text, _ := files.ReadFile(path.Join(dir, entry.Name()))
		into, name := map[string][]string{}, "" // what stands before the first name is a comment
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if rest, ok := strings.CutPrefix(line, "--@ "); ok {
				if title, _, ok := strings.Cut(rest, ": "); ok {
					into, name = named, title
					continue
				}
			}
			if rest, ok := strings.CutPrefix(line, "local function "); ok && dir == "lib" {
				name, _, _ = strings.Cut(rest, "(")
				into = c.functions
			}
			switch code := strings.TrimSpace(line); {
			case code == "" && dir == "lib":
				into = map[string][]string{}
			case code == "" || strings.HasPrefix(code, "--") && !isMark(code):
			default:
				into[name] = append(into[name], line)
			}
		}
	}
}

func isMark(code string) bool { return strings.HasPrefix(code, "--@") }

// expand returns lines with what their marks stand for. known are the functions that stand before them.
func (c *composer) expand(lines []string, known map[string]bool) (out []string) {
	for i := 0; i < len(lines); i++ {
		code := strings.TrimSpace(lines[i])
		switch {
		case code == "--@":
			block, inside := lines[i+1:blockEnd(lines, i)], maps.Clone(known)
			for _, name := range c.calls(block) {
				out = indented(out, c.define(name, inside), indent(lines[i]))
			}
			out = append(out, c.expand(block, inside)...)
			i += len(block)
		case isMark(code):
			out = append(out, c.expand(indented(nil, c.insert(code), indent(lines[i])), known)...)
		default:
			out = append(out, lines[i])
		}
	}
	return out
}

// define is the lines of a function and of those that it calls, unless they are known, and makes them known.
func (c *composer) define(name string, known map[string]bool) (out []string) {
	body := c.functions[name]
	if body == nil || known[name] {
		return nil
	}
	for _, other := range c.calls(body[1:]) {
		out = append(out, c.define(other, known)...)
	}
	known[name] = true
	return append(out, c.expand(body, known)...)
}

// calls are the functions that lines call, but for blocks with a mark of their own.
func (c *composer) calls(lines []string) (names []string) {
	for i := 0; i < len(lines); i++ {
		switch code := strings.TrimSpace(lines[i]); {
		case code == "--@":
			i = blockEnd(lines, i) - 1
		case isMark(code):
			names = append(names, c.calls(c.insert(code))...)
		default:
			for _, call := range c.called.FindAllString(lines[i], -1) { // those of Redis and Lua, as redis.call, are no names
				names = append(names, strings.TrimSuffix(call, "("))
			}
		}
	}
	return names
}

func (c *composer) insert(mark string) []string {
	lines := c.inserts[strings.TrimPrefix(mark, "--@ ")]
	if lines == nil {
		panic("BUG: lib has nothing for " + mark)
	}
	return lines
}

// blockEnd is where the block ends in which a mark stands.
func blockEnd(lines []string, mark int) int {
	at := indent(lines[mark])
	for i := mark + 1; i < len(lines); i++ {
		if indent(lines[i]) < at {
			return i
		}
	}
	return len(lines)
}

// indented appends lines behind n more blanks.
func indented(dst, lines []string, n int) []string {
	for _, line := range lines {
		dst = append(dst, strings.Repeat(" ", n)+line)
	}
	return dst
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
