// Package house checks what no single package can: that the packages of this module import each other only along the
// arrows of the architecture, and that the documents say what the code does.
package house

import (
	"flag"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// arrow says that a package may import another. An empty target names a package that imports nothing.
type arrow struct{ from, to string }

func (a arrow) String() string { return strings.TrimSpace(a.from + " -> " + a.to) }

var update = flag.Bool("update", false, "write arrows.txt anew; its reasons stay")

// imports are the arrows that the code has.
func imports(t *testing.T) (arrows map[arrow]bool) {
	arrows = map[arrow]bool{}
	for dir, files := range packages(t) {
		leaf := true
		for _, file := range files {
			for _, spec := range file.Imports {
				if target, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), modulePath+"/"); ours {
					arrows[arrow{dir, target}] = true
					leaf = false
				}
			}
		}
		if leaf {
			arrows[arrow{dir, ""}] = true
		}
	}
	return arrows
}

func TestImportsFollowTheArrows(t *testing.T) {
	text, err := os.ReadFile("arrows.txt")
	if err != nil {
		t.Fatal(err)
	}
	var head strings.Builder
	allowed, reasons := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			head.WriteString(line)
			continue
		}
		name, reason, ok := strings.Cut(strings.TrimSpace(line), "  # ")
		if ok {
			reasons[name] = reason
		}
		allowed[name] = true
	}
	var now []string
	for a := range imports(t) {
		now = append(now, a.String())
	}
	slices.Sort(now)
	if *update {
		for _, name := range now {
			head.WriteString(name)
			if reason := reasons[name]; reason != "" {
				head.WriteString("  # " + reason)
			}
			head.WriteString("\n")
		}
		if err := os.WriteFile("arrows.txt", []byte(head.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(allowed)), now); diff != "" {
		t.Errorf("arrows.txt (-allowed +imports); -update writes it anew:\n%s", diff)
	}
}

// read is the text of a file of the tree.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tablePackages are the packages in the first column of the document's table.
var tablePackages = regexp.MustCompile("(?m)^\\| `((?:cmd|internal)/[^`]+)` \\|")

func TestArchitectureNamesEveryPackage(t *testing.T) {
	text := read(t, "docs/dev/ARCHITECTURE.md")
	var documented []string
	for _, match := range tablePackages.FindAllStringSubmatch(text, -1) {
		documented = append(documented, match[1])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(packages(t))), documented); diff != "" {
		t.Errorf("docs/dev/ARCHITECTURE.md, sorted (-packages +document):\n%s", diff)
	}
}

// tableCodes are the codes in the first column of the document's tables.
var tableCodes = regexp.MustCompile("(?m)^\\| `([A-Z]+)` \\|")

func TestErrorsDocumentListsEveryCode(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/LOCKS.md"), "\n## Errors\n")
	var documented []resp.Code
	for _, match := range tableCodes.FindAllStringSubmatch(text, -1) {
		documented = append(documented, resp.Code(match[1]))
	}
	if diff := cmp.Diff(resp.Codes(), documented); diff != "" {
		t.Errorf("docs/LOCKS.md differs from the codes of package resp (-code +document):\n%s", diff)
	}
}

var (
	relativeLink = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inNoAnchor   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the parts of a document that a link may name: its headings, as GitHub makes anchors of them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		all["#"+strings.ReplaceAll(inNoAnchor.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return all
}

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	for _, name := range tree(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		text := read(t, name)
		name = filepath.Join(root, name)
		for _, match := range relativeLink.FindAllStringSubmatch(text, -1) {
			to, part := name, match[2]
			if len(match[1]) > 0 {
				to = filepath.Join(filepath.Dir(name), match[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: dead link %s", name, match[1])
			} else if target, err := os.ReadFile(to); part != "" && (err != nil || !anchors(string(target))[part]) {
				t.Errorf("%s: %s has no %s", name, to, part)
			}
		}
	}
}

// An alert at night leads to the section that says what to do.
func TestAlertsLeadToSectionsOfOperations(t *testing.T) {
	alerts := read(t, "configs/prometheus-alerts.yml")
	text := read(t, "docs/OPERATIONS.md")
	sections := anchors(text)
	for _, alert := range strings.Split(alerts, "- alert: ")[1:] {
		name, rule, _ := strings.Cut(alert, "\n")
		_, url, _ := strings.Cut(rule, "runbook_url: https://"+modulePath+"/blob/main/docs/OPERATIONS.md")
		if section, _, _ := strings.Cut(url, "\n"); !sections[section] {
			t.Errorf("%s leads to section %q of OPERATIONS.md, which does not exist", name, section)
		}
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("OPERATIONS.md does not name %s", name)
		}
	}
}

// go install path@version refuses a go.mod that says more of other modules than their versions.
func TestModuleCanBeInstalled(t *testing.T) {
	if found := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`).FindString(read(t, "go.mod")); found != "" {
		t.Errorf("go.mod: go install would refuse %q", found)
	}
}
