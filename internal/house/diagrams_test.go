package house

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// drawn lists the types whose values are the states of a diagram in docs/dev/ARCHITECTURE.md.
var drawn = map[string][]string{
	"internal/proxy/session":  {"wait", "life", "pinMode"},
	"internal/lockcmds/table": {"Outcome"},
}

// A semicolon ends a statement of Mermaid, also within the text of a message or a note.
func TestDiagramsHaveNoSemicolons(t *testing.T) {
	text := read(t, "docs/dev/ARCHITECTURE.md")
	for _, diagram := range regexp.MustCompile("(?s)```mermaid\n.*?```").FindAllString(text, -1) {
		for line := range strings.Lines(diagram) {
			if strings.Contains(line, ";") {
				t.Errorf("Mermaid does not read this line: %s", line)
			}
		}
	}
}

func TestDiagramsHaveEveryState(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/dev/ARCHITECTURE.md"), "\n## States\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for dir, names := range drawn {
		for _, name := range names {
			values := valuesOf(packages(t)[dir], name)
			if len(values) == 0 {
				t.Errorf("%s has no values of a type %s", dir, name)
			}
			for _, value := range values {
				if !regexp.MustCompile(`\b` + value + `\b`).MatchString(text) {
					t.Errorf("docs/dev/ARCHITECTURE.md does not have %s of %s.%s", value, dir, name)
				}
			}
		}
	}
}

// valuesOf lists the constants of a type, which begin with one that names the type.
func valuesOf(files []*ast.File, name string) (values []string) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || len(decl.Specs) == 0 {
				return true
			}
			first, ok := decl.Specs[0].(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := first.Type.(*ast.Ident); !ok || kind.Name != name || decl.Tok.String() != "const" {
				return true
			}
			for _, spec := range decl.Specs {
				values = append(values, spec.(*ast.ValueSpec).Names[0].Name)
			}
			return true
		})
	}
	return values
}
