package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// modulePath is the path of this module.
const modulePath = "github.com/lockproxy/lockproxy"

// go install path@version wants a path with a host name, and refuses a go.mod that says more of other modules than their versions.
func TestModuleCanBeInstalled(t *testing.T) {
	if host, rest, _ := strings.Cut(modulePath, "/"); !strings.Contains(host, ".") || rest == "" {
		t.Errorf("the module path %s has no host", modulePath)
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`).Find(text); found != nil {
		t.Errorf("go.mod: go install would refuse %q", found)
	}
	for dir, want := range map[string]string{"": modulePath, "bench": modulePath + "/bench", "tools": modulePath + "/tools", "tools/release": modulePath + "/tools/release"} {
		text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(want) + `$`).Match(text) {
			t.Errorf("%s is not the module %s", filepath.Join(dir, "go.mod"), want)
		}
	}
}

// mostBytes is the size that the program may have. A library that calls methods by names which the linker does not know, or
// imports text/template, adds 12 MB: then the linker keeps all methods, rueidis's command builders among them.
const mostBytes = 20 << 20

func TestTheProgramIsSmall(t *testing.T) {
	program := filepath.Join(t.TempDir(), "lockproxy")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./cmd/lockproxy")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("the program has %d bytes, more than %d", info.Size(), mostBytes)
	}
}
