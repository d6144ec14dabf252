package house

import (
	_ "embed" // words.txt
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A bannedWord is a word that this project used in a meaning of its own, or a form of sentence that is hard to read.
type bannedWord struct {
	prose *regexp.Regexp // in comments, documents and texts of the program; nil: allowed there
	names []string       // words of an identifier, in lower case
	use   string         // the field's word, or the better form
}

func prose(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`) }

// bannedWords lists the old vocabulary. docs/dev/GLOSSARY.md has the words that replace it.
var bannedWords = []bannedWord{
	// Words with a meaning known to nobody else, where the field has its own.
	{prose("rooms?"), []string{"room", "rooms"}, "wait queue; of memory: space"},
	{prose("topics?"), []string{"topic", "topics"}, "subscription, channel"},
	{nil, []string{"hub"}, "subscriber"},
	{prose("dogs?"), []string{"dog"}, "watchdog"},
	{prose("remainders?"), []string{"remainder", "remainders"}, "field of a session"},
	{prose("g(?:ive|ives|iven|iving|ave) (?:\\w+ ){0,3}back|tak(?:e|es|en|ing) (?:\\w+ )?off|took (?:\\w+ )?off"), []string{"giving"}, "roll back, release, drop; to a pool: return"},
	{prose("owed"), []string{"owed"}, "unanswered; of holds: rollback"},
	{nil, []string{"returning", "returned"}, "rollback"},
	{nil, []string{"heard", "news"}, "sequence number"},
	{prose("dead.?heads?|deaf"), []string{"deadhead", "deadheads", "deaf"}, "stale waiter, reaper"},
	{prose("kick(?:s|ed|ing)?|pok(?:e|es|ed|ing)"), []string{"kick", "poke"}, "wake"},
	{prose("bells?"), []string{"bell"}, "wake"},
	{nil, []string{"tend", "persist"}, "background job, retry"},
	{prose("turn(?:s|ed|ing)? (?:\\w+ )?away"), []string{"dismiss", "dismissal"}, "remove with an outcome"},
	{prose("crews?"), []string{"crew"}, "task group"},
	{prose("last words"), []string{"forsake"}, "abandon"},
	{prose("ghosts?"), nil, "stale waiter"},
	{nil, []string{"chain", "chains"}, "streak, of hand-overs"},
	{nil, []string{"refund", "spend", "tending"}, "rollback, undo, unfinished"},
	{nil, []string{"crews", "forsaken", "hubs", "kicks", "pokes", "unpin"}, "task group, abandon, subscriber, wake, cancel"},
	{prose("hubs?"), nil, "subscriber"},

	// Forms that make a sentence hard to read. The subject is a noun.
	{prose("somebody|nobody|everybody|anybody|whoever|someone|everyone|anyone"), nil, "name the party: a client, a session, no other session"},
	{prose("(?:at most )?so many|for so long|at most so long|so often"), nil, "name the number: at most n"},
	{prose("(?:of )?what (?:came|was|is|has|had|it has|they have) been|what there is|those that there are"), nil, "a noun"},
	{regexp.MustCompile(`(?:^|[.:;!?] )(?:Who|Others|What) (?:\w+s|\w+ed|is|has|was|may|can|must|will) `), nil, "begin with a noun"},
	{prose("told once|said once|of use to"), nil, "reported once"},
	{prose("(?:those|these|others|all|the ones?|by|as) whom?|whom to|(?:is|are) who"), nil, "name the party: the waiters that, the user that"},
	{prose("what (?:is|was|are|were|may be) left"), nil, "the rest of the lease, the remaining bytes"},

	// Contracts about mutexes have three forms.
	{regexp.MustCompile(`(?i)\b(?:session locked|session (?:must not be|is not) locked|without locks|called with \w+ held)\.?$`), nil, "Requires e.mu. Requires the session lock. Requires no locks."},
}

// literals lists for each banned word the texts, in lower case, of which every match has one. It is far cheaper to look for these first.
var literals = func() [][]string {
	all := make([][]string, len(bannedWords))
	for i, word := range bannedWords {
		if word.prose == nil {
			continue
		}
		parsed, err := syntax.Parse(word.prose.String(), syntax.Perl)
		if err != nil {
			panic(err)
		}
		all[i] = required(parsed)
	}
	return all
}()

// required is literals for an expression. Any text contains the empty one.
func required(re *syntax.Regexp) []string {
	shortest := func(list []string) int {
		return len(slices.MinFunc(list, func(a, b string) int { return len(a) - len(b) }))
	}
	best := []string{""}
	switch op := re.Op; {
	case op == syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case op == syntax.OpCapture, op == syntax.OpPlus:
		return required(re.Sub[0])
	case op == syntax.OpAlternate:
		best = nil
		for _, sub := range re.Sub {
			best = append(best, required(sub)...)
		}
	case op == syntax.OpConcat:
		for _, sub := range re.Sub {
			if list := required(sub); shortest(list) > shortest(best) {
				best = list
			}
		}
	}
	return best
}

// unclean lists the files that still have banned words. The list only shrinks.
//
//go:embed unclean.txt
var unclean string

func TestWordsAreTheFields(t *testing.T) {
	needed := map[string]bool{} // by excepted file
	for line := range strings.Lines(unclean) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			needed[line] = false
		}
	}
	for _, name := range texts(t) {
		found := findings(t, name)
		if _, excepted := needed[name]; excepted {
			needed[name] = len(found) > 0
		} else if len(found) > 0 {
			t.Errorf("%s", strings.Join(found, "\n"))
		}
	}
	for name, ok := range needed {
		if !ok {
			t.Errorf("%s is clean, or not there: delete it from unclean.txt", name)
		}
	}
}

// texts lists the files that are written in the project's language. Tests, records of decisions and the changelog are history.
func texts(t *testing.T) []string {
	t.Helper()
	tops := []string{"README.md", "CONTRIBUTING.md", "cmd", "internal", "bench", "configs", "docs", "examples", "interop/README.md", "test/locks/README.md"}
	history := []string{"docs/dev/adr", "bench/results", "internal/house"}
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

// proseFindings lists the banned words of a text.
func proseFindings(text string) []string {
	var found []string
	lower := strings.ToLower(text)
	for i, word := range bannedWords {
		if word.prose == nil || !slices.ContainsFunc(literals[i], func(s string) bool { return strings.Contains(lower, s) }) {
			continue
		}
		for _, match := range word.prose.FindAllString(text, -1) {
			found = append(found, strconv.Quote(strings.TrimSpace(match))+": use "+word.use)
		}
	}
	return found
}

// findings lists the banned words of a file with their lines.
func findings(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	inProse := func(line int, text string) {
		for _, finding := range proseFindings(text) {
			found = append(found, name+":"+strconv.Itoa(line)+": "+finding)
		}
	}
	if path.Ext(name) != ".go" {
		for i, line := range strings.Split(string(text), "\n") {
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
	seen := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if value, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && strings.Contains(value, " ") {
				inProse(files.Position(n.Pos()).Line, value)
			}
		case *ast.Ident:
			if seen[n.Name] {
				return true
			}
			seen[n.Name] = true
			for _, word := range bannedWords {
				for _, part := range nameWords(n.Name) {
					if slices.Contains(word.names, part) {
						found = append(found, name+":"+strconv.Itoa(files.Position(n.Pos()).Line)+": "+n.Name+": use "+word.use)
					}
				}
			}
		}
		return true
	})
	return found
}

// nameWords splits an identifier at its capitals, "kickSameLocked" into "kick", "same" and "locked".
func nameWords(name string) []string {
	var parts []string
	start := 0
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			parts, start = append(parts, strings.ToLower(name[start:i])), i
		}
	}
	return append(parts, strings.ToLower(name[start:]))
}

func TestBannedWordsAreFound(t *testing.T) {
	for _, text := range []string{"the room of a lock", "Nobody waits", "is given back later", "turned it away", "he is deaf", "It is called with mu held.", "The session must not be locked.", "those who wait"} {
		if len(proseFindings(text)) == 0 {
			t.Errorf("%q has no banned word", text)
		}
	}
	for _, text := range []string{"a mushroom", "the hold is rolled back", "what a lease promises"} {
		if len(proseFindings(text)) > 0 {
			t.Errorf("%q has a banned word", text)
		}
	}
	for i, word := range bannedWords {
		if word.prose != nil && slices.Contains(literals[i], "") {
			t.Errorf("%s: a match may have any text, so the search is slow", word.prose)
		}
	}
	if got := nameWords("kickSameLocked"); !slices.Equal(got, []string{"kick", "same", "locked"}) {
		t.Error(got)
	}
}
