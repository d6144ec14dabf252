package house

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree lists the files of the project, relative to the root and with slashes. Files that git ignores are not of the
// project: installed packages, built programs.
func tree(t *testing.T) []string {
	t.Helper()
	files, err := loadTree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var loadTree = sync.OnceValues(func() ([]string, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		if files, err := checkedOut(root); err == nil {
			return files, nil
		}
	}
	return unpacked(root) // there is no git, or the files are an archive's
})

// checkedOut lists the files in a checkout that git knows, or would add.
func checkedOut(root string) ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files that git knows: %w", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil { // else it was removed, and git was not told
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil // a file in a conflict is listed several times
}

// installed are the names of directories that .gitignore names, wherever they are, and of others of that kind.
var installed = []string{"node_modules", "__pycache__", "bin", "target", "vendor"}

// unpacked lists the files of an archive of the project, in which other programs may have installed packages.
func unpacked(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
				return nil
			}
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && name != root
		switch {
		case entry.IsDir() && (hidden || slices.Contains(installed, entry.Name())):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		rel, err := filepath.Rel(root, name)
		files = append(files, filepath.ToSlash(rel))
		return err
	})
	slices.Sort(files)
	return files, err
}

// under reports whether a file is in the directory top, or is top.
func under(file, top string) bool { return file == top || strings.HasPrefix(file, top+"/") }

func TestIgnoredFilesAreNotOfTheProject(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(".gitignore", read(t, ".gitignore"))
	write("go.mod", read(t, "go.mod"))
	want := []string{".gitignore", "examples/README.md", "examples/node/lock.mjs", "go.mod", "internal/new/new.go"}
	write(want[1], "")
	write(want[2], "")
	write(want[4], "package new\n")
	for _, name := range []string{
		"bin/tool/tool.go", "examples/node_modules/a/golang/a.go", "examples/node/node_modules/b/README.md", "node_modules/c/c.go",
		"examples/.venv/lib/d.md", "bench/.venv/e.md", "examples/python/__pycache__/f.md", "examples/java/target/g.yml", "examples/vendor/h/h.go", ".cache/i.go",
	} {
		write(name, "package a\n")
	}
	files, err := unpacked(dir)
	if diff := cmp.Diff(want, files); diff != "" || err != nil {
		t.Errorf("%v, an archive (-want +got):\n%s", err, diff)
	}
	git := exec.Command("git", "init", "-q")
	git.Dir = dir
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err = checkedOut(dir)
	if diff := cmp.Diff(want, files); diff != "" || err != nil {
		t.Errorf("%v, a checkout (-want +got):\n%s", err, diff)
	}
	list := exec.Command("go", "list", "./examples/...", "./internal/...", "./node_modules/...")
	list.Dir = dir
	if out, err := list.Output(); err != nil || string(out) != modulePath+"/internal/new\n" {
		t.Errorf("%v, the packages are %q", err, out)
	}
}
