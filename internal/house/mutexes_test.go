package house

import (
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documentedMutex is a row of docs/LOCKORDER.md.
var documentedMutex = regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\|")

func TestDocumentHasEveryMutex(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/LOCKORDER.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, match := range documentedMutex.FindAllSubmatch(text, -1) {
		documented[string(match[1])] = true
	}
	declared := map[string]bool{}
	for _, p := range listed(t) {
		if p.name == "internal/redistest" || p.name == "internal/locktest" {
			continue // for tests only
		}
		for _, file := range p.parsed {
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				fields, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range fields.Fields.List {
					if kind := selected(field.Type); kind != "sync.Mutex" && kind != "sync.RWMutex" {
						continue
					}
					for _, name := range field.Names {
						declared[strings.TrimPrefix(p.name, "internal/")+"."+spec.Name.Name+"."+name.Name] = true
					}
				}
				return true
			})
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(declared)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("docs/LOCKORDER.md (-code +document):\n%s", diff)
	}
}
