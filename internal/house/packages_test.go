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

// A listedPackage is a package of the program as the go command lists it, parsed and type-checked for this system.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string

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
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "-race="+strconv.FormatBool(raced()), "./cmd/...", "./internal/...")
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

// raced reports whether this test was built with the race detector. The packages were then compiled for it, and need
// not be compiled again.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
