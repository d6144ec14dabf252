package house

import (
	gotypes "go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	walkStep = regexp.MustCompile("`([a-z]+)`: ([^;|]*)")      // a package and its functions, in a cell of a walk
	walkName = regexp.MustCompile("`((?:[A-Za-z]+\\.)?\\w+)`") // one of them
)

// TestWalksNameFunctionsThatExist keeps the walks of ARCHITECTURE.md: each name is declared in the package before it,
// and stands behind its type if several types of the package have a method of that name.
func TestWalksNameFunctionsThatExist(t *testing.T) {
	text := read(t, "docs/dev/ARCHITECTURE.md")
	_, walks, begun := strings.Cut(text, "## Walks through the code")
	walks, _, ended := strings.Cut(walks, "## Goroutines")
	if !begun || !ended {
		t.Fatal("docs/dev/ARCHITECTURE.md has no walks")
	}
	functions := map[string][]string{} // the types that have a method "package.name", "" for a function
	types := map[string]bool{}         // "package.name"
	for _, p := range listed(t) {
		pkg := filepath.Base(p.name) + "."
		for id, object := range p.info.Defs {
			switch object := object.(type) {
			case *gotypes.Func:
				owner := ""
				if recv := object.Signature().Recv(); recv != nil {
					owner = receiverOf(recv.Type())
					if gotypes.IsInterface(recv.Type()) {
						continue
					}
				}
				functions[pkg+id.Name] = append(functions[pkg+id.Name], owner)
			case *gotypes.TypeName:
				types[pkg+id.Name] = true
			}
		}
	}
	count := 0
	for _, step := range walkStep.FindAllStringSubmatch(walks, -1) {
		for _, match := range walkName.FindAllStringSubmatch(step[2], -1) {
			name := match[1]
			if strings.HasSuffix(name, ".lua") {
				continue
			}
			count++
			of, member, qualified := strings.Cut(name, ".")
			if !qualified {
				of, member = "", name
			}
			owners := functions[step[1]+"."+member]
			switch {
			case qualified && !slices.Contains(owners, of):
				t.Errorf("docs/dev/ARCHITECTURE.md: package %s has no %s", step[1], name)
			case !qualified && len(owners) == 0 && !types[step[1]+"."+name]:
				t.Errorf("docs/dev/ARCHITECTURE.md: package %s has no %s", step[1], name)
			case !qualified && len(owners) > 1:
				t.Errorf("docs/dev/ARCHITECTURE.md: package %s: whose %s, of %q?", step[1], name, owners)
			}
		}
	}
	if count < 30 {
		t.Errorf("the walks name only %d functions", count)
	}
}

// receiverOf is the name of the type of a receiver.
func receiverOf(t gotypes.Type) string {
	if p, ok := t.(*gotypes.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*gotypes.Named); ok {
		return named.Obj().Name()
	}
	return ""
}
