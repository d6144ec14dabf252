package house

import (
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// drawn lists the types whose values are the states of a diagram in docs/dev/DIAGRAMS.md.
var drawn = map[string][]string{
	"internal/proxy/session":  {"wait", "life", "pinMode"},
	"internal/lockcmds/table": {"Outcome"},
}

// A semicolon ends a statement of Mermaid, also within the text of a message or a note.
func TestDiagramsHaveNoSemicolons(t *testing.T) {
	text := read(t, "docs/dev/DIAGRAMS.md")
	for _, diagram := range regexp.MustCompile("(?s)```mermaid\n.*?```").FindAllString(text, -1) {
		for line := range strings.Lines(diagram) {
			if strings.Contains(line, ";") {
				t.Errorf("Mermaid does not read this line: %s", line)
			}
		}
	}
}

func TestDiagramsHaveEveryState(t *testing.T) {
	text := read(t, "docs/dev/DIAGRAMS.md")
	for _, p := range listed(t) {
		for _, name := range drawn[p.name] {
			values := 0
			for id, object := range p.info.Defs {
				value, ok := object.(*types.Const)
				if !ok || value.Type().String() != modulePath+"/"+p.name+"."+name {
					continue
				}
				values++
				if !regexp.MustCompile(`\b` + id.Name + `\b`).MatchString(text) {
					t.Errorf("docs/dev/DIAGRAMS.md does not have %s of %s.%s", id.Name, p.name, name)
				}
			}
			if values == 0 {
				t.Errorf("%s has no values of a type %s", p.name, name)
			}
		}
	}
}
