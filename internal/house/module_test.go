package house

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// modulePath is the path of this module.
const modulePath = "github.com/lockproxy/lockproxy"

// go install path@version wants a path with a host name, and refuses a go.mod that says more of other modules than
// their versions.
func TestModuleCanBeInstalled(t *testing.T) {
	if host, rest, _ := strings.Cut(modulePath, "/"); !strings.Contains(host, ".") || rest == "" {
		t.Errorf("the module path %s has no host", modulePath)
	}
	if found := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`).FindString(read(t, "go.mod")); found != "" {
		t.Errorf("go.mod: go install would refuse %q", found)
	}
	for dir, want := range map[string]string{"": modulePath, "bench": modulePath + "/bench", "tools": modulePath + "/tools", "tools/release": modulePath + "/tools/release"} {
		file := filepath.Join(dir, "go.mod")
		if !regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(want) + `$`).MatchString(read(t, file)) {
			t.Errorf("%s is not the module %s", file, want)
		}
	}
}
