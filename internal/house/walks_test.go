package house

import (
	"go/ast"
	"path"
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
	walks, _, ended := strings.Cut(walks, "## States")
	if !begun || !ended {
		t.Fatal("docs/dev/ARCHITECTURE.md has no walks")
	}
	functions := map[string][]string{} // the types that have a method "package.name", "" for a function
	types := map[string]bool{}         // "package.name"
	for dir, files := range packages(t) {
		pkg := path.Base(dir) + "."
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					types[pkg+n.Name.Name] = true
				case *ast.FuncDecl:
					name := pkg + n.Name.Name
					if owner := receiverOf(n); !slices.Contains(functions[name], owner) { // each system may have one
						functions[name] = append(functions[name], owner)
					}
				}
				return true
			})
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

// receiverOf is the name of the type that has a method; empty: it is a function.
func receiverOf(f *ast.FuncDecl) (name string) {
	if f.Recv == nil {
		return ""
	}
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool { // the first name: those of type parameters follow
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}
