package grammar

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// This file prints the table of the lock commands into docs/LOCKS.md.

const page = "../../../docs/LOCKS.md"

var write = flag.Bool("update", false, "write the generated sections of docs/LOCKS.md")

func TestDocumentIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := updated(text)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case bytes.Equal(text, want) && bytes.Contains(text, []byte("<!-- generated: ")):
	case *write:
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/LOCKS.md is stale: run go test ./internal/lockcmds/grammar -update")
	}
}

func TestSyntaxAndArityFollowFromTheArguments(t *testing.T) {
	for _, c := range []struct {
		verb, syntax string
		arity        int
	}{
		{"fairlock", "FAIRLOCK key [SHARED | LIMIT n] [WAIT ms] [PX ms | EX s] [OWNER id] [GRACE ms] [MAXHOLD ms] [SYNC n] [NOTE text]", -2},
		{"EXTENDLOCK", "EXTENDLOCK key PX ms | EX s [SHARED] [OWNER id] [FENCE n]", -4},
		{"LockInfo", "LOCKINFO key", 2},
		{"locklist", "LOCKLIST [MATCH pattern] [COUNT n]", -1},
	} {
		s := Find(c.verb)
		if s.Syntax() != c.syntax || s.Arity() != c.arity {
			t.Errorf("%s, arity %d; want %s, %d", s.Syntax(), s.Arity(), c.syntax, c.arity)
		}
	}
}

// Syntax is the command with its arguments as the documents print it: "UNLOCK key [OWNER id] [FENCE n]".
func (s *Spec) Syntax() string {
	words := []string{strings.ToUpper(s.Name)}
	for _, a := range s.Arguments {
		words = append(words, a.syntax())
	}
	return strings.Join(words, " ")
}

func (a Argument) syntax() string {
	text := strings.Join(a.forms(), " | ")
	if a.Optional {
		return "[" + text + "]"
	}
	return text
}

// forms are the alternatives as a client writes them.
func (a Argument) forms() (all []string) {
	for _, one := range a.alternatives() {
		all = append(all, strings.TrimSpace(one.Token+" "+one.Value))
	}
	return all
}

// sections are the parts of the documents that are generated, by the name in their marks.
var sections = map[string]func() string{
	"syntax": syntaxBlock, "verbs": verbTable, "options": optionTable,
}

// updated returns a document with its generated sections as they should be. A section stands between two marks:
//
//	<!-- generated: verbs -->
//	…
//	<!-- end -->
func updated(document []byte) ([]byte, error) {
	const begin, closing, end = "<!-- generated: ", " -->\n", "<!-- end -->"
	var out bytes.Buffer
	for {
		before, rest, found := bytes.Cut(document, []byte(begin))
		out.Write(before)
		if !found {
			return out.Bytes(), nil
		}
		name, rest, _ := bytes.Cut(rest, []byte(closing))
		_, after, closed := bytes.Cut(rest, []byte(end))
		section := sections[string(name)]
		if section == nil || !closed {
			return nil, fmt.Errorf("section %.20q is unknown or has no end", name)
		}
		out.WriteString(begin + string(name) + closing + section() + end)
		document = after
	}
}

func syntaxBlock() string {
	var b strings.Builder
	b.WriteString("```\n")
	for i := range table {
		name, arguments, _ := strings.Cut(table[i].Syntax(), " ")
		if i+1 < len(table) && strings.HasSuffix(table[i+1].Syntax(), " "+arguments) { // as those of the next command
			b.WriteString(name + " | ")
			continue
		}
		b.WriteString(name + " " + arguments + "\n")
	}
	b.WriteString("```\n")
	return b.String()
}

func verbTable() string {
	rows := [][]string{{"Command", "Does", "Answers"}}
	for _, s := range table {
		rows = append(rows, []string{code(strings.ToUpper(s.Name)), s.Does, s.Replies})
	}
	return markdown(rows)
}

func optionTable() string {
	rows := [][]string{{"Option", "Means"}}
	var seen option
	for _, s := range table {
		for _, a := range s.explained() {
			if a.Means == "" || seen&a.options() != 0 {
				continue
			}
			seen |= a.options()
			if a.Absent != "" {
				var tokens []string
				for _, one := range a.OneOf {
					tokens = append(tokens, code(one.Token))
				}
				rows = append(rows, []string{"none of " + strings.Join(tokens, ", "), a.Absent})
			}
			var forms []string
			for _, form := range a.forms() {
				forms = append(forms, code(form))
			}
			rows = append(rows, []string{strings.Join(forms, ", "), a.Means})
		}
	}
	return markdown(rows)
}

// explained are the arguments that have a row each. Those of a set without words of its own have their own words.
func (s *Spec) explained() (all []Argument) {
	for _, a := range s.Arguments {
		if a.Means == "" {
			all = append(all, a.alternatives()...)
		} else {
			all = append(all, a)
		}
	}
	return all
}

func code(text string) string { return "`" + text + "`" }

// markdown prints a table whose first row is the header.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString("|")
			if cell != "" {
				b.WriteString(" " + cell)
			}
			b.WriteString(" ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}
