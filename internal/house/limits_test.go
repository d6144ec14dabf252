package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The limits of a package. A package, a file or a type that exceeds one has more than one job.
const (
	maxFiles   = 20  // Go files of a package, without tests, of all systems
	maxLines   = 400 // lines of a Go file, without tests
	maxMethods = 40  // methods of a type
	maxPairs   = 33  // percent of the pairs of files of which one refers to the other; a third is within the limit

	// The share of pairs says nothing about a package of fewer files. If each of them refers to one file, and to no other, the share is
	// 40 % of five, and 67 % of three. The number of lines bounds these packages instead (docs/adr/0037-small-packages-are-bounded-by-their-lines.md).
	minFilesForPairs = 6
	maxSmallLines    = 1200 // lines of a package with fewer files than that, without tests
)

// A measure names a number that one of the limits applies to.
type measure struct {
	of   string // "internal/proxy", "internal/proxy/server.go", "internal/proxy.Session"
	kind string // "files", "lines", "methods", "pairs", "lines of a package with few files"
}

var limits = map[string]int{
	"files": maxFiles, "lines": maxLines, "methods": maxMethods, "pairs": maxPairs, "lines of a package with few files": maxSmallLines,
}

// exceptions lists the measures that exceed their limit today, each with the largest number that it may have. The list
// only shrinks: the test fails if a number grows beyond its exception, and also if an exception is no longer needed.
var exceptions = map[measure]int{}

func TestPackagesKeepTheLimits(t *testing.T) {
	measured := map[measure]int{}
	for _, p := range listed(t) {
		if strings.HasPrefix(p.name, "internal/redistest") || strings.HasPrefix(p.name, "internal/house") {
			continue // for tests only
		}
		files, lines := 0, 0
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			n := bytes.Count(text, []byte("\n"))
			measured[measure{p.name + "/" + name, "lines"}] = n
			files++
			lines += n
		}
		measured[measure{p.name, "files"}] = files
		most, methods := "", 0
		for name, n := range p.methods() {
			measured[measure{p.name + "." + name, "methods"}] = n
			if n > methods {
				most, methods = name, n
			}
		}
		related, possible := p.pairs(), len(p.parsed)*(len(p.parsed)-1)/2
		percent := 0
		if possible > 0 {
			percent = (100*related + possible - 1) / possible // rounded up
		}
		if 3*related <= possible {
			percent = min(percent, maxPairs)
		}
		if len(p.parsed) >= minFilesForPairs {
			measured[measure{p.name, "pairs"}] = percent
		} else {
			measured[measure{p.name, "lines of a package with few files"}] = lines
		}
		t.Logf("%-28s %3d files %5d lines, pairs of files %3d of %3d (%3d %%), most methods %3d %s", p.name, files, lines, related, possible, percent, methods, most)
	}
	for m, n := range measured {
		limit, excepted := exceptions[m]
		switch {
		case !excepted && n > limits[m.kind]:
			t.Errorf("%s: %d %s, the limit is %d", m.of, n, m.kind, limits[m.kind])
		case excepted && n > limit:
			t.Errorf("%s: %d %s, its exception allows %d: exceptions only shrink", m.of, n, m.kind, limit)
		case excepted && n <= limits[m.kind]:
			t.Errorf("%s: %d %s, within the limit of %d: delete its exception", m.of, n, m.kind, limits[m.kind])
		}
	}
	for m := range exceptions {
		if _, ok := measured[m]; !ok {
			t.Errorf("%s (%s) does not exist: delete its exception", m.of, m.kind)
		}
	}
}

// A listedPackage is a package of the program as the go command lists it, parsed and type-checked for this system.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles, IgnoredGoFiles []string

	name   string // relative to the module
	parsed []*ast.File
	info   types.Info
	files  *token.FileSet
}

// listed loads the packages of the program once for all tests.
func listed(t *testing.T) []*listedPackage {
	t.Helper()
	packages, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

var load = sync.OnceValues(func() ([]*listedPackage, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,IgnoredGoFiles", "-race="+strconv.FormatBool(raced()), "./cmd/...", "./internal/...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, err
	}
	exported := map[string]string{}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) })
	var packages []*listedPackage
	for decode := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listedPackage{files: files}
		if err := decode.Decode(p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		exported[p.ImportPath] = p.Export
		name, ours := strings.CutPrefix(p.ImportPath, modulePath+"/")
		if !ours || len(p.GoFiles) == 0 {
			continue
		}
		p.name = name
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(files, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				return nil, err
			}
			p.parsed = append(p.parsed, parsed)
		}
		p.info = types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: imports}
		if _, err := config.Check(p.ImportPath, files, p.parsed, &p.info); err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})

// raced reports whether this test was built with the race detector. The packages were then compiled for it, and need not be compiled again.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// methods counts the methods of each type.
func (p *listedPackage) methods() map[string]int {
	count := map[string]int{}
	for id, object := range p.info.Defs {
		if f, ok := object.(*types.Func); ok && f.Signature().Recv() != nil && f.Pos() == id.Pos() {
			recv := f.Signature().Recv().Type()
			if pointer, ok := recv.(*types.Pointer); ok {
				recv = pointer.Elem()
			}
			if named, ok := recv.(*types.Named); ok {
				count[named.Obj().Name()]++
			}
		}
	}
	return count
}

// pairs counts the pairs of files of which one uses a name that the other declares: a constant, variable, type or
// function of the package, a method or a field.
func (p *listedPackage) pairs() int {
	type pair struct{ a, b *token.File }
	found := map[pair]bool{}
	for id, object := range p.info.Uses {
		if object.Pkg() == nil || object.Pkg().Path() != p.ImportPath || !object.Pos().IsValid() {
			continue
		}
		from, to := p.files.File(id.Pos()), p.files.File(object.Pos())
		switch {
		case from == to:
		case from.Base() < to.Base():
			found[pair{from, to}] = true
		default:
			found[pair{to, from}] = true
		}
	}
	return len(found)
}
