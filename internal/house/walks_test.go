package house

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	walkStep = regexp.MustCompile("`([a-z]+)`: ([^;|]*)")      // a package and its functions, in a cell of a walk
	walkName = regexp.MustCompile("`((?:[A-Za-z]+\\.)?\\w+)`") // one of them
)

// TestWalksNameFunctionsThatExist keeps the walks of ARCHITECTURE.md: each name is declared in the package before it.
func TestWalksNameFunctionsThatExist(t *testing.T) {
	text := read(t, "docs/dev/ARCHITECTURE.md")
	_, walks, begun := strings.Cut(text, "## Walks through the code")
	walks, _, ended := strings.Cut(walks, "## Goroutines")
	if !begun || !ended {
		t.Fatal("docs/dev/ARCHITECTURE.md has no walks")
	}
	declared := map[string]bool{} // "package.name", of all packages
	for _, p := range listed(t) {
		for id, object := range p.info.Defs {
			if object != nil {
				declared[filepath.Base(p.name)+"."+id.Name] = true
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
			if of, member, qualified := strings.Cut(name, "."); qualified {
				if !declared[step[1]+"."+of] {
					t.Errorf("docs/dev/ARCHITECTURE.md: package %s has no %s", step[1], of)
				}
				name = member
			}
			if !declared[step[1]+"."+name] {
				t.Errorf("docs/dev/ARCHITECTURE.md: package %s has no %s", step[1], name)
			}
		}
	}
	if count < 30 {
		t.Errorf("the walks name only %d functions", count)
	}
}
