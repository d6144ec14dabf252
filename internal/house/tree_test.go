package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	root = "../.."

	// modulePath is the path of this module.
	modulePath = "github.com/lockproxy/lockproxy"
)

// tree lists the files that git knows, or would add, relative to the root and with slashes. Without git, the test is
// skipped.
func tree(t *testing.T) []string {
	t.Helper()
	files, err := loadTree()
	if err != nil {
		t.Skipf("git does not list the files: %v", err)
	}
	return files
}

var loadTree = sync.OnceValues(func() ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(name string) bool { // it was removed, and git was not told
		_, err := os.Stat(filepath.Join(root, name))
		return err != nil
	}), nil
})

// under reports whether a file is in the directory top, or is top.
func under(file, top string) bool { return file == top || strings.HasPrefix(file, top+"/") }

// packages has the parsed files of each package of the program, without its tests, by directory relative to the root.
func packages(t *testing.T) map[string][]*ast.File {
	t.Helper()
	tree(t) // or skips
	found, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var parse = sync.OnceValues(func() (map[string][]*ast.File, error) {
	names, err := loadTree()
	if err != nil {
		return nil, err
	}
	found, files := map[string][]*ast.File{}, token.NewFileSet()
	for _, name := range names {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") || !under(name, "cmd") && !under(name, "internal") {
			continue
		}
		dir := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") {
			found[dir] = slices.Clip(found[dir]) // a package of tests alone has no files
			continue
		}
		file, err := parser.ParseFile(files, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		found[dir] = append(found[dir], file)
	}
	return found, nil
})

// The planted bugs keep in step with the code; `make bugs` plants them.
func TestBugsCanBePlanted(t *testing.T) {
	for _, file := range tree(t) {
		if path.Ext(file) != ".patch" {
			continue
		}
		check := exec.Command("git", "apply", "-C1", "--check", file)
		check.Dir = root
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}
