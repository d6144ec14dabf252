// Package house checks what no single package can: that the packages of this module are documented, import each other
// only along the arrows of the architecture, and that the documents say what the code does.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockproxy/internal/resp"
)

const root = "../.."

// arrows names, for each package, what it may import of this module outside of tests. A new package needs a row, and
// a reason for each arrow.
var arrows = map[string][]string{
	"cmd/lockproxy":                 {"internal/admin", "internal/certs", "internal/embedded", "internal/proxy", "internal/resp", "internal/upstream"},
	"internal/admin":                {"internal/proxy", "internal/proxy/status"}, // it reads the counters
	"internal/buffers":              {},
	"internal/certs":                {},
	"internal/direct":               {},
	"internal/embedded":             {},
	"internal/house":                {},
	"internal/lockcmds":             {"internal/lockcmds/clock", "internal/lockcmds/glob", "internal/lockcmds/grammar", "internal/lockcmds/jobs", "internal/lockcmds/losses", "internal/lockcmds/owners", "internal/lockcmds/redislink", "internal/lockcmds/turns", "internal/resp", "internal/watchdog"},
	"internal/lockcmds/engines":     {"internal/lockcmds", "internal/lockcmds/jobs", "internal/lockcmds/losses", "internal/lockcmds/redislink", "internal/upstream/admission"}, // jobs: one pool for all engines; admission: places for them
	"internal/lockcmds/clock":       {},
	"internal/lockcmds/glob":        {},
	"internal/lockcmds/grammar":     {"internal/lockcmds/owners"}, // OWNER refuses the names that proxies give out
	"internal/lockcmds/grammar/gen": {"internal/lockcmds/grammar"},
	"internal/lockcmds/jobs":        {"internal/lockcmds/clock"}, // tasks that begin later
	"internal/lockcmds/losses":      {},
	"internal/lockcmds/owners":      {},
	"internal/lockcmds/redislink":   {"internal/resp"},
	"internal/lockcmds/turns":       {},
	"internal/proxy":                {"internal/buffers", "internal/direct", "internal/lockcmds", "internal/lockcmds/engines", "internal/lockcmds/grammar", "internal/lockcmds/losses", "internal/lockcmds/owners", "internal/proxy/budget", "internal/proxy/clients", "internal/proxy/command", "internal/proxy/idchange", "internal/proxy/inbox", "internal/proxy/status", "internal/resp", "internal/upstream"}, // losses: a session has them
	"internal/proxy/budget":         {},
	"internal/proxy/clients":        {"internal/resp"},
	"internal/proxy/command":        {"internal/lockcmds/grammar", "internal/proxy/clients", "internal/resp", "internal/upstream"}, // upstream: the table of Redis's commands
	"internal/proxy/inbox":          {"internal/buffers"},
	"internal/proxy/idchange":       {"internal/resp", "internal/upstream"},
	"internal/proxy/status":         {"internal/lockcmds", "internal/lockcmds/grammar", "internal/proxy/budget", "internal/resp", "internal/upstream"}, // it reads the counters of all of them
	"internal/redistest":            {},
	"internal/resp":                 {},
	"internal/upstream":             {"internal/buffers", "internal/direct", "internal/resp", "internal/upstream/admission", "internal/upstream/lineup"},
	"internal/upstream/admission":   {},
	"internal/upstream/lineup":      {},
	"internal/watchdog":             {},
}

// packages parses the Go files of every package of the program, by directory relative to the root.
func packages(t *testing.T) map[string][]*ast.File {
	t.Helper()
	found := map[string][]*ast.File{}
	files := token.NewFileSet()
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return filepath.SkipDir
			case filepath.Ext(path) != ".go":
				return nil
			}
			file, err := parser.ParseFile(files, path, nil, parser.ImportsOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			found[filepath.ToSlash(dir)] = append(found[filepath.ToSlash(dir)], file)
			if strings.HasSuffix(path, "_test.go") {
				file.Imports = nil // tests may import what they need
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for dir, files := range packages(t) {
		documented := slices.ContainsFunc(files, func(file *ast.File) bool {
			text := file.Doc.Text()
			return strings.HasPrefix(text, "Package ") || strings.HasPrefix(text, "Command ")
		})
		if !documented {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func TestImportsFollowTheArrows(t *testing.T) {
	for dir, files := range packages(t) {
		allowed, ok := arrows[dir]
		if !ok {
			t.Errorf("%s has no row in the table of arrows", dir)
			continue
		}
		for _, file := range files {
			for _, spec := range file.Imports {
				target, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "lockproxy/")
				if ours && !slices.Contains(allowed, target) {
					t.Errorf("%s imports %s", dir, target)
				}
			}
		}
	}
}

// tableCodes are the codes in the first column of the document's tables.
var tableCodes = regexp.MustCompile("(?m)^\\| `([A-Z]+)` \\|")

func TestErrorsDocumentListsEveryCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/ERRORS.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []resp.Code
	for _, match := range tableCodes.FindAllSubmatch(text, -1) {
		documented = append(documented, resp.Code(match[1]))
	}
	if diff := cmp.Diff(resp.Codes(), documented); diff != "" {
		t.Errorf("docs/ERRORS.md differs from the codes of package resp (-code +document):\n%s", diff)
	}
}

var relativeLink = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(root, "docs/adr/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(documents, records, []string{filepath.Join(root, "README.md")}) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range relativeLink.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), string(match[1]))); err != nil {
				t.Errorf("%s: dead link %s", name, match[1])
			}
		}
	}
}

func TestEveryOptionOfTheLockCommandsIsSet(t *testing.T) {
	set := map[string]bool{}
	inspect(t, "internal/proxy/env.go", func(n ast.Node) { // what all engines have in common
		if lit, ok := n.(*ast.CompositeLit); ok && selected(lit.Type) == "lockcmds.Options" {
			for _, e := range lit.Elts {
				set[e.(*ast.KeyValueExpr).Key.(*ast.Ident).Name] = true
			}
		}
	})
	inspect(t, "internal/lockcmds/engines/registry.go", func(n ast.Node) { // what each has of its own
		if assign, ok := n.(*ast.AssignStmt); ok {
			for _, e := range assign.Lhs {
				if option, ok := strings.CutPrefix(selected(e), "opts."); ok {
					set[option] = true
				}
			}
		}
	})
	inspect(t, "internal/lockcmds/engine.go", func(n ast.Node) {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Options" {
			return
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			for _, name := range field.Names {
				if name.IsExported() && !set[name.Name] && name.Name != "Clock" { // only a simulation has another
					t.Errorf("nobody sets lockcmds.Options.%s", name.Name)
				}
			}
		}
	})
	if len(set) == 0 {
		t.Fatal("no place that sets the options was found")
	}
}

// inspect calls f for every node of a source file.
func inspect(t *testing.T, name string, f func(ast.Node)) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool { f(n); return true })
}

// selected is "package.Name" of a type expression, else empty.
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}
