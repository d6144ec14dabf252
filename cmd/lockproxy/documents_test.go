package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/SETTINGS.md")

const (
	settingsDocument = "../../docs/SETTINGS.md"
	settingsHead     = `# Settings

Written from the table in cmd/lockproxy/config.go by ` + "`go test ./cmd/lockproxy -run Document -update`" + `.
[configs/lockproxy.yml](../configs/lockproxy.yml) has every key with its default and a longer explanation.

A flag wins over the environment, the environment over the file (` + "`--config`" + `), the file over the default. The key ` + "`lock.lease`" + `
is the flag ` + "`--lock-lease`" + ` and the variable ` + "`LOCKPROXY_LOCK_LEASE`" + `. Only ` + "`upstream.address`" + ` is shorter: ` + "`--upstream`" + `.
Unknown keys and unknown variables that begin with ` + "`LOCKPROXY_`" + ` are errors, except for those that Kubernetes sets.

At SIGHUP, settings marked with ↻ change, and files of certificates are read again. Others wait for a restart. If the
configuration is not valid, nothing changes.

Durations have a unit: ` + "`250ms`, `1h30m`" + `. Sizes are written as in redis.conf: ` + "`64mb`" + ` is 64·1024·1024 bytes.

| Key | Default | Meaning |
|---|---|---|
`
)

// settingsTable is the document as the table of settings has it.
func settingsTable() string {
	var b strings.Builder
	b.WriteString(settingsHead)
	for _, s := range settingsOf(new(NewConfig())) {
		value, meaning := "`"+s.String()+"`", s.tag.Get("help")
		if s.String() == "" {
			value = "unset"
		}
		if s.tag.Get("reload") == "yes" {
			meaning += " ↻"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.key, value, meaning)
	}
	return b.String()
}

func TestDocumentOfSettingsIsTheTable(t *testing.T) {
	want := settingsTable()
	if *update {
		if err := os.WriteFile(settingsDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, readText(t, settingsDocument)); diff != "" {
		t.Errorf("run go test ./cmd/lockproxy -run Document -update (-table +document):\n%s", diff)
	}
}

// readmeSetting is a row of the README's table of settings: key and default.
var readmeSetting = regexp.MustCompile("(?m)^\\| (`[a-z.-]+`) \\| (`[^`]*`|unset) \\|")

func TestReadmeHasTheDefaults(t *testing.T) {
	table := settingsTable()
	rows := readmeSetting.FindAllStringSubmatch(readText(t, "../../README.md"), -1)
	for _, row := range rows {
		if !strings.Contains(table, "| "+row[1]+" | "+row[2]+" |") {
			t.Errorf("README.md says that %s is %s by default", row[1], row[2])
		}
	}
	if len(rows) < 5 {
		t.Errorf("README.md has only %d settings", len(rows))
	}
}
