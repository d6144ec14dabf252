package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A hardForm is a form of sentence that is hard to read.
type hardForm struct {
	prose *regexp.Regexp // in comments, documents and texts of the program
	use   string         // the better form
}

func prose(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`) }

// hardForms are those that have been found here. The subject of a sentence is a noun.
var hardForms = []hardForm{
	{prose("somebody|nobody|everybody|anybody|whoever|someone|everyone|anyone"), "name the party: a client, a session, no other session"},
	{prose("(?:at most )?so many|for so long|at most so long|so often"), "name the number: at most n"},
	{prose("(?:of )?what (?:came|was|is|has|had|it has|they have) been|what there is|those that there are"), "a noun"},
	{regexp.MustCompile(`(?:^|[.:;!?] )(?:Who|Others|What) (?:\w+s|\w+ed|is|has|was|may|can|must|will) `), "begin with a noun"},
	{prose("told once|said once|of use to"), "reported once"},
	{prose("(?:those|these|others|all|the ones?|by|as) whom?|whom to|(?:is|are) who"), "name the party: the waiters that, the user that"},
	{prose("what (?:is|was|are|were|may be) left"), "the rest of the lease, the remaining bytes"},
	{prose("g(?:ive|ives|iven|iving|ave) (?:\\w+ ){0,3}back|tak(?:e|es|en|ing) (?:\\w+ )?off|took (?:\\w+ )?off"), "roll back, release, drop; to a pool: return"},

	// Contracts about mutexes have three forms.
	{regexp.MustCompile(`(?i)\b(?:session locked|session (?:must not be|is not) locked|without locks|called with \w+ held)\.?$`), "Requires e.mu. Requires the session lock. Requires no locks."},
}

// anyHardForm matches where any of them does. It is far cheaper to look for all at once first.
var anyHardForm = func() *regexp.Regexp {
	var all []string
	for _, word := range hardForms {
		all = append(all, word.prose.String())
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}()

func TestSentencesAreEasyToRead(t *testing.T) {
	for _, name := range texts(t) {
		if found := findings(t, name); len(found) > 0 {
			t.Errorf("%s", strings.Join(found, "\n"))
		}
	}
}

// texts lists the files that are written in the project's language. Tests and the changelog are history.
func texts(t *testing.T) []string {
	t.Helper()
	tops := []string{"README.md", "CONTRIBUTING.md", "cmd", "internal", "bench", "configs", "docs", "examples", "interop/README.md", "test/locks/README.md"}
	history := []string{"bench/results", "internal/house"}
	var list []string
	for _, name := range tree(t) {
		in := func(top string) bool { return under(name, top) }
		switch {
		case !slices.ContainsFunc(tops, in), slices.ContainsFunc(history, in), strings.Contains(name, "/testdata/"), strings.HasSuffix(name, "_test.go"):
		case slices.Contains([]string{".go", ".lua", ".md", ".yml", ".html"}, path.Ext(name)):
			list = append(list, name)
		}
	}
	return list
}

// proseFindings lists the hard forms in a text.
func proseFindings(text string) []string {
	var found []string
	if !anyHardForm.MatchString(text) {
		return nil
	}
	for _, word := range hardForms {
		for _, match := range word.prose.FindAllString(text, -1) {
			found = append(found, strconv.Quote(strings.TrimSpace(match))+": use "+word.use)
		}
	}
	return found
}

// findings lists the hard forms in a file with their lines.
func findings(t *testing.T, name string) []string {
	t.Helper()
	text := read(t, name)
	var found []string
	inProse := func(line int, text string) {
		for _, finding := range proseFindings(text) {
			found = append(found, name+":"+strconv.Itoa(line)+": "+finding)
		}
	}
	if path.Ext(name) != ".go" {
		for i, line := range strings.Split(text, "\n") {
			inProse(i+1, strings.TrimLeft(line, "-#*> "))
		}
		return found
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			inProse(files.Position(comment.Pos()).Line, strings.TrimLeft(strings.TrimPrefix(comment.Text, "//"), "/* \t"))
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if value, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && strings.Contains(value, " ") {
				inProse(files.Position(n.Pos()).Line, value)
			}
		}
		return true
	})
	return found
}

func TestHardFormsAreFound(t *testing.T) {
	for _, text := range []string{"Nobody waits", "is given back later", "It is called with mu held.", "The session must not be locked.", "those who wait"} {
		if len(proseFindings(text)) == 0 {
			t.Errorf("%q has no hard form", text)
		}
	}
	for _, text := range []string{"the hold is rolled back", "what a lease promises"} {
		if len(proseFindings(text)) > 0 {
			t.Errorf("%q has a hard form", text)
		}
	}
}
