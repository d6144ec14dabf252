package house

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listedMutex is a line of mutexes.txt.
var listedMutex = regexp.MustCompile(`(?m)^\d+ (\S+)$`)

func TestEveryMutexHasALevel(t *testing.T) {
	text := read(t, "internal/house/mutexes.txt")
	listed := map[string]bool{}
	for _, match := range listedMutex.FindAllStringSubmatch(text, -1) {
		listed[match[1]] = true
	}
	declared := map[string]bool{}
	for dir, files := range packages(t) {
		if dir == "internal/redistest" || dir == "internal/locktest" || dir == "internal/proxytest" {
			continue // for tests only
		}
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && isMutex(v.Type) {
					t.Errorf("%s: a mutex that is no field of a type: %v", dir, v.Names)
				}
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				fields, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range fields.Fields.List {
					if !isMutex(field.Type) {
						continue
					}
					if len(field.Names) == 0 {
						t.Errorf("%s: %s embeds a mutex: give it a name", dir, spec.Name.Name)
					}
					for _, name := range field.Names {
						declared[strings.TrimPrefix(dir, "internal/")+"."+spec.Name.Name+"."+name.Name] = true
					}
				}
				return true
			})
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(declared)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("mutexes.txt (-code +list):\n%s", diff)
	}
}

// isMutex reports whether a type is a mutex, or has one behind a pointer or in a list.
func isMutex(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isMutex(e.X)
	case *ast.ArrayType:
		return isMutex(e.Elt)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && x.Name == "sync" && (e.Sel.Name == "Mutex" || e.Sel.Name == "RWMutex")
	}
	return false
}
